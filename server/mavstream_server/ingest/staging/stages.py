"""Stages: rows that were sent to a stream and are not in it yet, each in a file of its own."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from mavstream_protocol.quantities import format_size
from mavstream_server.core.clock import Clock
from mavstream_server.core.errors import Forbidden, NotFound, StorageFailed, TooMany, storage_problem
from mavstream_server.core.principal import Principal

_LOG = logging.getLogger("mavstream.streams")

MOST_STAGES = 10_000
_SUFFIX = ".arrow"
_DRAFT = ".draft"
_OWNER, _SENT = b"mavstream.owner", b"mavstream.sent"
_PERIOD = 1_000_000_000
"""Interval between two looks for expired stages, in nanoseconds."""


@dataclass(frozen=True, slots=True)
class StoredStage:
    """A stage as it is on disk."""

    stream: str
    name: str
    file: Path
    rows: int
    nbytes: int
    """Bytes of the file, and about those of the rows in memory."""
    owner: str | None
    """The name of the token that sent it; None if it belongs to all."""
    at_us: int
    """When it was sent: microseconds since 1970."""

    def read(self) -> pa.Table:
        """Return the rows; blocks on the disk. Raises NotFound, StorageFailed."""
        try:
            with pa.memory_map(str(self.file)) as source:
                return pa.ipc.open_file(source).read_all()
        except FileNotFoundError:
            raise _no_stage(self.stream, self.name) from None
        except (OSError, pa.ArrowException) as error:
            raise StorageFailed(
                f"stage '{self.name}' of stream '{self.stream}' cannot be read ({error}): send its rows again"
            ) from error


class StageStore:
    """All stages of a server: `<directory>/<stream>/<stage>.arrow`. They outlive the process."""

    def __init__(
        self, directory: Path, streams: Container[str], clock: Clock, most_bytes: int, expiry_us: int
    ) -> None:
        """Find the stages of an earlier process; those of streams that are gone are removed."""
        self._directory = directory
        self._clock = clock
        self._most_bytes = most_bytes
        self._expiry_us = expiry_us
        self._stages: dict[tuple[str, str], StoredStage] = {}
        self._nbytes = 0
        self._looked = clock.monotonic()
        for folder in sorted(directory.glob("*/")):
            if folder.name in streams:
                self._open(folder)
            else:
                shutil.rmtree(folder, ignore_errors=True)

    def _open(self, folder: Path) -> None:
        for file in sorted(folder.iterdir()):
            try:
                if file.suffix != _SUFFIX:
                    raise ValueError("it was not written to its end")
                self._add(_opened(file))
            except (OSError, ValueError, KeyError, pa.ArrowException) as error:
                _LOG.warning("stage removed", extra={"file": str(file), "reason": str(error)})
                file.unlink(missing_ok=True)

    @property
    def nbytes(self) -> int:
        """The bytes of all stages."""
        return self._nbytes

    def of_stream(self, stream: str) -> list[StoredStage]:
        """Return the stages of a stream, ordered by name."""
        return sorted(
            (stage for stage in self._stages.values() if stage.stream == stream), key=lambda each: each.name
        )

    def find(self, stream: str, name: str, who: Principal) -> StoredStage:
        """Return a stage; raises NotFound, and Forbidden if it belongs to somebody else."""
        stage = self._stages.get((stream, name))
        if stage is None:
            raise _no_stage(stream, name)
        _require_owner(stage, who)
        return stage

    async def put(self, stream: str, name: str, batch: pa.RecordBatch, who: Principal) -> StoredStage:
        """Store rows under a name, in place of what is there.

        Raises Forbidden if the stage belongs to somebody else, TooMany, StorageFull, StorageFailed.
        """
        known = self._stages.get((stream, name))
        if known is not None:
            _require_owner(known, who)
        room = batch.nbytes - (0 if known is None else known.nbytes)
        self._check_room(stream, name, room, known is None)
        file = self._directory / stream / f"{name}{_SUFFIX}"
        self._nbytes += room  # reserved, because others may be sent meanwhile
        try:
            stage = await asyncio.to_thread(_write, file, batch, who.name, self._clock.now() // 1000)
        except OSError as error:
            raise storage_problem(f"stage '{name}' of stream '{stream}'", error) from error
        finally:
            self._nbytes -= room
        self._add(stage)
        return stage

    def remove(self, stage: StoredStage) -> None:
        """Remove a stage; does nothing if it is gone or was replaced."""
        if self._stages.get((stage.stream, stage.name)) is stage:
            del self._stages[stage.stream, stage.name]
            self._nbytes -= stage.nbytes
            stage.file.unlink(missing_ok=True)

    def discard(self, stream: str, names: Iterable[str], who: Principal) -> None:
        """Remove the stages of these names that are there and that the token may remove."""
        for name in names:
            stage = self._stages.get((stream, name))
            if stage is not None and who.may_change(stage.owner):
                self.remove(stage)

    def remove_stream(self, stream: str) -> None:
        """Remove the stages of a stream that is removed."""
        for stage in self.of_stream(stream):
            self.remove(stage)
        shutil.rmtree(self._directory / stream, ignore_errors=True)

    def expire(self) -> None:
        """Remove stages that nobody has published; to be called periodically."""
        now = self._clock.monotonic()
        if now - self._looked < _PERIOD:
            return
        self._looked = now
        before = self._clock.now() // 1000 - self._expiry_us
        for stage in [stage for stage in self._stages.values() if stage.at_us < before]:
            self.remove(stage)
            _LOG.info("stage expired", extra={"stream": stage.stream, "stage": stage.name})

    def _check_room(self, stream: str, name: str, nbytes: int, fresh: bool) -> None:
        if fresh and len(self._stages) >= MOST_STAGES:
            raise TooMany(
                f"stage '{name}' of stream '{stream}' would be one more than the {MOST_STAGES} that are "
                "allowed: publish or remove some, or send more rows in each",
                code="too_many_stages",
            )
        if self._nbytes + nbytes > self._most_bytes:
            raise TooMany(
                f"stage '{name}' of stream '{stream}' would raise the size of all stages to "
                f"{format_size(self._nbytes + nbytes)}, and {format_size(self._most_bytes)} are allowed: "
                "publish or remove some, or raise MAVSTREAM_MAX_STAGE_BYTES",
                code="too_many_stages",
            )

    def _add(self, stage: StoredStage) -> None:
        known = self._stages.get((stage.stream, stage.name))
        self._nbytes += stage.nbytes - (0 if known is None else known.nbytes)
        self._stages[stage.stream, stage.name] = stage


def _no_stage(stream: str, name: str) -> NotFound:
    return NotFound(
        f"stream '{stream}' has no stage '{name}': it was published or removed, or it has expired; send its "
        "rows again",
        code="unknown_stage",
    )


def _require_owner(stage: StoredStage, who: Principal) -> None:
    if not who.may_change(stage.owner):
        raise Forbidden(
            f"stage '{stage.name}' of stream '{stage.stream}' belongs to token '{stage.owner}', and this is "
            f"token '{who.name}': use another name"
        )


def _write(file: Path, batch: pa.RecordBatch, owner: str | None, at_us: int) -> StoredStage:
    """Write a file that is there as a whole or not at all."""
    draft = file.with_name(f"{file.stem}-{secrets.token_hex(8)}{_DRAFT}")
    notes = {_SENT: str(at_us).encode(), **({} if owner is None else {_OWNER: owner.encode()})}
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with (
            pa.OSFile(str(draft), "wb") as sink,
            pa.ipc.new_file(sink, batch.schema.with_metadata(notes)) as writer,
        ):
            writer.write_batch(batch)
        os.replace(draft, file)
    finally:
        draft.unlink(missing_ok=True)
    return _opened(file)


def _opened(file: Path) -> StoredStage:
    with pa.memory_map(str(file)) as source:
        reader = pa.ipc.open_file(source)
        notes = reader.schema.metadata or {}
        rows = sum(reader.get_batch(index).num_rows for index in range(reader.num_record_batches))
    owner = notes.get(_OWNER)
    return StoredStage(
        file.parent.name,
        file.stem,
        file,
        rows,
        file.stat().st_size,
        None if owner is None else owner.decode(),
        int(notes[_SENT]),
    )
