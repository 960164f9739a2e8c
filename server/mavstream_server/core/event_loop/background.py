"""Runs blocking disk work outside of the event loop and reports its end on the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol

Work = Callable[[], None]
Done = Callable[[BaseException | None], None]


class Background(Protocol):
    """Runs work that blocks on the disk."""

    def run(self, work: Work, done: Done) -> None:
        """Do the work, then call `done` with its error or None in the thread that called this method."""

    def settle(self) -> None:
        """Return when all work is done and reported."""


class Inline:
    """Does the work at once, for programs without an event loop."""

    def run(self, work: Work, done: Done) -> None:
        """Do the work, then call `done`."""
        error: BaseException | None = None
        try:
            work()
        except Exception as caught:
            error = caught
        done(error)

    def settle(self) -> None:
        """Return at once."""


class InThreads:
    """Does the work in a few threads and reports its end on an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int = 4) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(threads, "mavstream-sync")
        self._running: dict[Future[None], Done] = {}

    def run(self, work: Work, done: Done) -> None:
        """Start the work; `done` is called on the loop."""
        future = self._pool.submit(work)
        self._running[future] = done
        future.add_done_callback(self._schedule_finish)

    def settle(self) -> None:
        """Wait for running work and report its end here; more can be run afterwards."""
        while self._running:
            future = next(iter(self._running))
            with suppress(Exception):
                future.result()
            self._finish(future)

    def close(self) -> None:
        """Settle and end the threads."""
        self.settle()
        self._pool.shutdown()

    def _schedule_finish(self, future: Future[None]) -> None:
        # A closed loop needs no report: it was settled before it was closed.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._finish, future)

    def _finish(self, future: Future[None]) -> None:
        done = self._running.pop(future, None)
        if done is not None:
            done(future.exception())
