"""The work queue of an event loop: important work at once, the rest in small amounts per turn of the loop.

An event loop cannot be preempted: what arrives while a piece of work runs waits for it, and for everything
else that runs before the sockets are polled again. The queue bounds that time for work that is not of the
highest importance. It throttles nothing: while there is no other work, the loop turns as fast as it can.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from mavstream_server.core.clock import Clock
from mavstream_server.core.event_loop.importance_queue import ImportanceQueue
from mavstream_server.core.importance import Importance

T = TypeVar("T")
Work = Callable[[], object]

_BUDGET = 500_000
"""How long, in ns, less important work may take per turn of the event loop; its last piece may exceed it."""


_MOST_SKIPPED = 3
"""How many turns in a row less important work lets pass for important work."""


class Soon(Protocol):
    """Schedules calls for the next turn of an event loop."""

    def call_soon(self, callback: Callable[[], None]) -> object:
        """Call back in the next turn, after the sockets were polled."""


class WorkQueue:
    """Runs pieces of work by importance.

    Work of the highest importance runs at once. Other work runs while the turn's budget lasts; what is left
    waits for the next turn, the most important first. Each turn also runs the piece that has waited longest,
    so that nothing starves. A turn in which important work was done or announced is left to what follows from
    it: rows that were read are appended, answers are sent. A piece of work must not raise.
    """

    def __init__(self, importance: Importance, clock: Clock, loop: Soon, budget: int = _BUDGET) -> None:
        self._importance = importance
        self._clock = clock
        self._loop = loop
        self._budget = budget
        self._spent = 0  # ns of less important work in the current turn
        self._waiting: ImportanceQueue[int, Work] = ImportanceQueue()
        self._number = 0
        self._scheduled = False
        self._announced = False
        self._skipped = 0  # turns in a row that were left to important work

    def goes_first(self, importance: int) -> bool:
        """Return whether work of this importance never waits."""
        return importance >= self._importance.highest

    def announce(self, importance: int) -> None:
        """Have less important work wait for a turn: work of this importance is about to be done."""
        if importance >= self._importance.highest:
            self._announced = True

    def submit(self, importance: int, work: Work) -> None:
        """Run a piece of work, now or in one of the next turns."""
        if self.goes_first(importance):
            self._announced = True
            work()
            return
        if self._spent < self._budget and not self._waiting and not self._announced:
            self._run(work)
        else:
            self._number += 1
            self._waiting.put(importance, self._number, work)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        self._spent = 0
        announced, self._announced = self._announced, False
        waiting = self._waiting
        if not waiting:
            return
        if announced and self._skipped < _MOST_SKIPPED:
            self._skipped += 1
            self._schedule()
            return
        self._skipped = 0
        while waiting and self._spent < self._budget:
            self._run(waiting.pop())
        if waiting:
            self._run(waiting.pop_oldest())
        self._schedule()

    def _run(self, work: Work) -> None:
        begin = self._clock.monotonic()
        work()
        self._spent += self._clock.monotonic() - begin


async def in_turn(queue: WorkQueue, importance: int, work: Callable[[], T]) -> T:
    """Do work when the queue runs it, important work at once; return its result or raise its error."""
    if queue.goes_first(importance):
        queue.announce(importance)
        return work()
    done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def run() -> None:
        if done.cancelled():
            return
        try:
            done.set_result(work())
        except Exception as error:
            done.set_exception(error)

    queue.submit(importance, run)
    return await done
