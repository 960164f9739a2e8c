"""Files that browsers send for streams: received in pieces, checked as a whole, then appended.

Reading, checking and appending run in a thread with a client of its own, so that the page's event loop
never waits for them.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from enum import StrEnum
from pathlib import Path

from mavstream import Client, MavstreamError
from mavstream_page.data.row_files import RowFile

MOST_BYTES = 256 << 20
"""The largest file that is taken; larger ones are fed with `mavstream feed`."""


class Phase(StrEnum):
    """What is done with a file."""

    RECEIVING = "receiving"
    CHECKING = "checking"
    APPENDING = "appending"
    DONE = "done"
    FAILED = "failed"


class Upload:
    """A file on its way to a stream."""

    def __init__(self, stream: str, name: str, size: int) -> None:
        self.stream = stream
        self.name = name
        self.size = size
        """Bytes that are expected."""
        self.phase = Phase.RECEIVING
        self.received = 0
        """Bytes so far."""
        self.checked = 0
        """Rows that fit the stream so far."""
        self.appended = 0
        """Rows so far."""
        self.problem = ""
        """Why it failed."""
        self.errors: list[str] = []
        """What does not fit the stream, by row."""
        self.cancelled = False
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Whether it goes on."""
        return self.phase not in (Phase.DONE, Phase.FAILED)

    @property
    def share(self) -> float | None:
        """How much of the phase is done, from 0 to 1; None where that is not known."""
        if self.phase is Phase.RECEIVING:
            return min(1.0, self.received / self.size) if self.size else None
        return self.appended / self.checked if self.phase is Phase.APPENDING and self.checked else None

    async def receive(self, chunks: AsyncIterator[bytes], url: str, token: str | None) -> None:
        """Take the content of the file; checking and appending go on after it returns."""
        with tempfile.NamedTemporaryFile(prefix="mavstream-", delete=False) as file:
            path = Path(file.name)
            try:
                async for chunk in chunks:
                    self.received += len(chunk)
                    if self.received > MOST_BYTES:
                        raise ValueError(too_large(self.stream, self.name))
                    file.write(chunk)
                    if self.cancelled:
                        raise ValueError("it was cancelled; nothing was appended")
            except BaseException as error:
                path.unlink()
                self.fail(str(error) or "the browser went away before the file had arrived")
                raise
        self._task = asyncio.create_task(asyncio.to_thread(self._run, path, url, token))

    def cancel(self) -> None:
        """End it after the piece that is appended now."""
        self.cancelled = True

    def fail(self, problem: str) -> None:
        """End it."""
        self.phase, self.problem = Phase.FAILED, problem

    def _run(self, path: Path, url: str, token: str | None) -> None:
        try:
            with Client(url, token=token) as client:
                file = RowFile(path, self.name, client.stream_info(self.stream).spec.schema())
                if self._check(file):
                    self._append(client, file)
        except (MavstreamError, OSError, ValueError) as error:
            so_far = f"the first {self.appended} of {self.checked} rows" if self.appended else "nothing"
            self.fail(f"{so_far} was appended: {error}".replace("rows was", "rows were"))
        finally:
            path.unlink()

    def _check(self, file: RowFile) -> bool:
        """Read the whole file, so that it is appended only if all of it fits."""
        self.phase = Phase.CHECKING
        for piece in file.pieces():
            self.checked += piece.num_rows
            if self.cancelled:
                raise ValueError("it was cancelled")
        self.errors = file.errors
        if self.errors:
            self.fail("nothing was appended, because rows do not fit the stream")
        return not self.errors

    def _append(self, client: Client, file: RowFile) -> None:
        self.phase = Phase.APPENDING
        for piece in file.pieces():
            if self.cancelled:
                raise ValueError("it was cancelled")
            self.appended += client.append(self.stream, piece)
        self.phase = Phase.DONE


def too_large(stream: str, name: str) -> str:
    """Return what is said about a file above the limit."""
    return f"{name} is larger than {MOST_BYTES >> 20} MiB: feed it with mavstream feed {stream}={name}"
