"""Run the blocks of a page, one after the other: files, commands, SQL and Python, against one server."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import httpx
import pytest
from tests.support.commands.in_process import command
from tests.support.servers.running_server import PATIENCE, RunningServer

_BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Step(NamedTuple):
    """A block that was run: what it printed, and what the page shows as its output, if anything."""

    line: int
    printed: str
    shown: str | None


class PageRun:
    """Runs a page in an empty folder; its commands start the server, kill it and start it again.

    - A block with a file name (```` ```csv file=rooms.csv ````) is that file.
    - `sh`: commands of `mavstream`, the output is that of the last one; also `cat FILE | mavstream ...`,
      `curl` and `kill -9`.
    - `sql`: the text is given to `mavstream sql --from earliest`.
    - `python`: all blocks share their names.
    - `text`: the output of the block before it.
    """

    def __init__(self, page: Path, folder: Path) -> None:
        self._page = page.read_text()
        self._data = folder / "data"
        self._server: RunningServer | None = None
        self._names: dict[str, Any] = {}
        self._patch = pytest.MonkeyPatch()
        self._patch.chdir(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patch.undo()
        if self._server is not None:
            self._server.close()

    def steps(self) -> Iterator[Step]:
        """Run the page block by block."""
        found = list(_BLOCK.finditer(self._page))
        for block, after in zip(found, [*found[1:], None], strict=True):
            language, file, text = block.groups()
            if file:
                Path(file).write_text(text)
            elif language in ("sh", "sql", "python"):
                shown = after[3] if after is not None and after[1] == "text" else None
                line = self._page.count("\n", 0, block.start()) + 1
                yield Step(line, getattr(self, f"_{language}")(text), shown)

    def _sh(self, text: str) -> str:
        printed = ""
        for line in text.splitlines():
            first, *words = shlex.split(line, comments=True)
            if first == "kill":
                assert self._server is not None
                self._server.kill()
            elif first == "curl":
                printed = self._request(words)
            elif words[:1] == ["serve"]:
                self._serve()
            elif first == "cat":
                file, pipe, program, *words = words
                assert (pipe, program) == ("|", "mavstream"), line
                printed = self._command(*words, stdin=Path(file).read_text())
            else:
                assert first == "mavstream", line
                printed = self._command(*words)
        return printed

    def _sql(self, text: str) -> str:
        return self._command("sql", "--from", "earliest", "-c", text)

    def _python(self, text: str) -> str:
        printed = StringIO()
        with redirect_stdout(printed):
            exec(compile(text, "page", "exec"), self._names)
        return printed.getvalue()

    def _command(self, *words: str, stdin: str = "") -> str:
        done = command(*words, stdin=stdin, MAVSTREAM_URL=self._url)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
        return done.stdout

    def _request(self, words: list[str]) -> str:
        """Do what curl does with -N, -H and an address."""
        headers = [words[at + 1].split(": ") for at, word in enumerate(words) if word == "-H"]
        address = words[-1].replace("http://127.0.0.1:8000", self._url)
        return httpx.get(address, headers=[(name, value) for name, value in headers], timeout=PATIENCE).text

    def _serve(self) -> None:
        if self._server is not None:
            self._server.close()
        self._server = RunningServer(self._data).wait_ready()
        self._patch.setenv("MAVSTREAM_URL", self._server.url)

    @property
    def _url(self) -> str:
        assert self._server is not None, "the page begins with `mavstream serve`"
        return self._server.url
