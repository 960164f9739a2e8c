"""A side process: computes for an event loop what would block it, one job after the other."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from typing import TypeVar

from mavstream_protocol.errors import MavstreamError

T = TypeVar("T")


class SideProcessDied(MavstreamError):
    """The process died during a job; the next job starts another one."""

    code = "side_process_died"


class SideProcess:
    """A process that is started by its first job, or before it, and ends with its parent.

    Arguments and results are pickled in threads, not on the event loop.
    """

    def __init__(self, niceness: int) -> None:
        """With a positive niceness, the process leaves processors to those that serve rows."""
        self._niceness = niceness
        self._pool: ProcessPoolExecutor | None = None
        self._starting = asyncio.Lock()
        self.waiting = 0
        """The number of jobs that run or wait."""

    async def run(self, job: Callable[..., T], *arguments: object) -> T:
        """Run a function of a module with picklable arguments; raises what it does, and SideProcessDied."""
        self.waiting += 1
        try:
            async with self._starting:
                pool = self._pool = self._pool or await asyncio.to_thread(_start, self._niceness)
            return await asyncio.get_running_loop().run_in_executor(pool, job, *arguments)
        except BrokenProcessPool:
            if pool is self._pool:
                await self.stop()
            raise SideProcessDied("the process that computes for this one died during a job") from None
        finally:
            self.waiting -= 1

    async def warm_up(self, module: str) -> None:
        """Start the process and let it import the module of its jobs, so that the first one need not wait.

        If the process dies meanwhile, the next job starts another one.
        """
        with contextlib.suppress(SideProcessDied):
            await self.run(_load, module)

    async def stop(self) -> None:
        """Stop the process, if it runs."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await asyncio.to_thread(pool.shutdown, cancel_futures=True)


def _start(niceness: int) -> ProcessPoolExecutor:
    """Start a process; takes some 20 ms, most of it for modules that are loaded then."""
    pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _init, (niceness,))
    pool.submit(int)
    return pool


def _load(module: str) -> None:
    import_module(module)


def _init(niceness: int) -> None:
    """Initialize the process: its CPU priority, and that it exits with its parent."""
    # Jobs make many objects that live until their end; collections in between would find no garbage.
    gc.set_threshold(200_000, 50, 50)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(niceness)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(0)

    threading.Thread(target=follow, daemon=True).start()
