"""Writes checkpoints in a forked process, which has a copy of all queries at the moment of the fork.

The engine goes on at once: it shares its memory with the copy, page by page, until either writes to it. The
copy may detach queries from shared pipelines and finish their work; the engine does not notice.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

import orjson

from mavstream_server.core.storage import failpoints
from mavstream_server.engine.checkpoints.cut import Cut

_PR_SET_PDEATHSIG = 1
_NICENESS = 10


class Written(NamedTuple):
    """The outcome of writing the checkpoint of one query."""

    query: str
    number: int
    nbytes: int
    duration_ns: int
    error: str | None = None
    """Why it could not be written."""
    cut: Cut | None = None
    """Where the query was."""
    postponed: bool = False
    """Whether it can be written once the query has done more of its work."""


class ForkedWriter:
    """One forked process that writes checkpoints, and reports each through a pipe."""

    def __init__(self, tasks: Sequence[Callable[[], Written | None]]) -> None:
        """Fork; each task writes one checkpoint in the child, or returns None if none is due."""
        self.begun = time.monotonic_ns()
        self._received = b""
        self.killed = False
        """Whether the child has ended before it had finished."""
        read_end, write_end = os.pipe()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            _run_child(tasks, write_end, parent)
        os.close(write_end)
        os.set_blocking(read_end, False)
        self._pipe = read_end

    def poll(self) -> tuple[list[Written], bool]:
        """Return the checkpoints that were written since the last call, and whether the child has ended."""
        ended = False
        while True:
            try:
                data = os.read(self._pipe, 1 << 16)
            except BlockingIOError:
                break
            if not data:
                ended = True
                break
            self._received += data
        *lines, self._received = self._received.split(b"\n")
        if ended:
            os.close(self._pipe)
            with suppress(ChildProcessError):
                self.killed = os.waitpid(self._pid, 0)[1] != 0
        return [_parsed(line) for line in lines], ended

    def kill(self) -> None:
        """End the child; what it has not reported is lost."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)


def _parsed(line: bytes) -> Written:
    written = Written(*orjson.loads(line))
    return written if written.cut is None else written._replace(cut=Cut(*written.cut))


def _run_child(tasks: Iterable[Callable[[], Written | None]], pipe: int, parent: int) -> None:
    """Write the checkpoints and exit without any clean-up: all objects belong to the parent."""
    try:
        gc.disable()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            return
        # The locks of result logs are held until the last copy of their descriptors is closed: were they
        # open here, the logs could not be opened again when the engine has died.
        os.dup2(pipe, 3)
        os.closerange(4, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        with suppress(OSError):
            os.nice(_NICENESS)
        failpoints.arm_from_environment("writer")
        for task in tasks:
            written = task()
            if written is None:
                continue
            rest = memoryview(orjson.dumps(written, default=tuple) + b"\n")
            while rest:
                rest = rest[os.write(3, rest) :]
    finally:
        os._exit(0)
