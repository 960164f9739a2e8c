"""The child process of an engine and the descriptors it shares with this one.

It imports next to nothing, so that a server can start its engine before it loads itself: both then load at
the same time.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from typing import Self

from mavstream_server.engine.crash_record import CrashRecord, record_file
from mavstream_server.engine.process.doorbell import Doorbell

_HUGE_PAGES = "glibc.malloc.hugetlb=1"
_POLL_S = 0.02  # seconds between two checks on systems without process descriptors


def _tunables(given: str) -> str:
    """Return the settings of the C library's allocator: in huge pages, unless `given` says otherwise.

    The engine forks to write checkpoints, which copies its page tables: with 600 MB that takes 17 ms in pages
    of 4 kB and 1 ms in huge pages. Other C libraries ignore it.
    """
    return given if "glibc.malloc.hugetlb" in given else ":".join(filter(None, (given, _HUGE_PAGES)))


class EngineChild:
    """A started engine process; it waits for commands and exits when the control socket is closed."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        control: socket.socket,
        news: Doorbell,
        results: Doorbell,
        record: CrashRecord,
    ) -> None:
        self._process = process
        self.control = control
        """This process's end of the control channel."""
        self.news = news
        """Rung by this process when stream logs have grown."""
        self.results = results
        """Rung by the engine when result logs have grown."""
        self.record = record
        """What the engine runs, or ran when it died."""

    @classmethod
    def start(cls, news: Doorbell | None = None, results: Doorbell | None = None) -> Self:
        """Start a process, with new doorbells if none are given."""
        news, results = news or Doorbell.create(), results or Doorbell.create()
        ours, theirs = socket.socketpair()
        record_fd = record_file()
        fds = {
            "--control-fd": theirs.fileno(),
            "--news-fd": news.hear_fd,
            "--results-fd": results.ring_fd,
            "--record-fd": record_fd,
        }
        options = [str(word) for pair in fds.items() for word in pair]
        try:
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-m", "mavstream_server.engine.process.host", *options],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=tuple(fds.values()),
                    # A session of its own: signals of a terminal to this process's group must not reach it.
                    start_new_session=True,
                    env={**os.environ, "GLIBC_TUNABLES": _tunables(os.environ.get("GLIBC_TUNABLES", ""))},
                )
                record = CrashRecord.on(record_fd)
        except BaseException:
            ours.close()
            raise
        finally:
            os.close(record_fd)
        return cls(process, ours, news, results, record)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def kill(self) -> None:
        """Kill the process, if it runs."""
        self._process.kill()

    async def wait(self) -> int:
        """Return its exit code when it has ended."""
        while (code := self._process.poll()) is None:
            await _ended(self._process.pid)
        return code


async def _ended(pid: int) -> None:
    """Wait until a child process has ended, or a moment on systems that cannot tell."""
    if not hasattr(os, "pidfd_open"):
        await asyncio.sleep(_POLL_S)
        return
    loop, fd = asyncio.get_running_loop(), os.pidfd_open(pid)
    ended = asyncio.Event()
    loop.add_reader(fd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)
