"""The work queue of an event loop: order by importance, waiting, and budgets per turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest
from tests.support.services.stream_store import ManualTimers

from mavstream_server.core.event_loop.work_queue import WorkQueue, in_turn
from mavstream_server.core.importance import AllEqual
from mavstream_server.testing import ManualClock

H, M, N = 6, 3, 1
BUDGET = 200


class ThreeClasses(AllEqual):
    """Queries of three classes run."""

    highest = H


class Loop:
    """A work queue on an event loop whose turns a test makes, with work that takes time by a manual clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers()
        self.queue = WorkQueue(ThreeClasses(), self.clock, self.timers, budget=BUDGET)
        self.done: list[str] = []

    def work(self, name: str, takes: int = 100) -> Callable[[], None]:
        def run() -> None:
            self.clock.advance(nanoseconds=takes)
            self.done.append(name)

        return run

    def submit(self, importance: int, *names: str, takes: int = 100) -> None:
        for name in names:
            self.queue.submit(importance, self.work(name, takes))

    def turn(self) -> list[str]:
        """Run a turn of the loop; returns the work done in it."""
        before, due = len(self.done), self.timers.soon[:]
        self.timers.soon.clear()
        for callback in due:
            callback()
        return self.done[before:]


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_less_important_work_is_bounded_per_turn_and_important_work_never_waits(loop: Loop) -> None:
    loop.submit(N, "n1", "n2", "n3", "n4", "n5")
    assert loop.done == ["n1", "n2"]
    loop.submit(H, "h1", "h2", "h3", "h4")
    assert loop.done[2:] == ["h1", "h2", "h3", "h4"]
    assert loop.turn() == []  # left to work that follows from important work
    # Two within the budget; the third because no work may wait forever.
    assert loop.turn() == ["n3", "n4", "n5"]


def test_pending_work_is_done_by_importance_and_then_by_age(loop: Loop) -> None:
    loop.submit(N, "first", takes=BUDGET)
    loop.submit(N, "n1", "n2", takes=10)
    loop.submit(M, "m1", "m2", takes=10)
    assert loop.turn() == ["m1", "m2", "n1", "n2"]


def test_nothing_starves_while_more_important_work_takes_the_whole_budget(loop: Loop) -> None:
    loop.submit(M, "m0", takes=BUDGET)
    loop.submit(N, "n1", "n2", takes=BUDGET)
    for number in range(1, 4):
        loop.submit(M, f"m{number}", takes=BUDGET)
    assert loop.turn() == ["m1", "n1"]
    assert loop.turn() == ["m2", "n2"]


def test_less_important_work_waits_a_turn_for_announced_work(loop: Loop) -> None:
    loop.submit(N, "n0", takes=BUDGET)
    loop.submit(N, "n1", "n2")
    loop.queue.announce(N)
    assert loop.turn() == ["n1", "n2"]
    loop.queue.announce(H)
    loop.submit(N, "n3")
    assert loop.done[-1] == "n2"
    assert loop.turn() == []
    assert loop.turn() == ["n3"]


def test_less_important_work_is_done_eventually_however_often_other_work_is_announced(loop: Loop) -> None:
    loop.submit(N, "n0", takes=BUDGET)
    loop.submit(N, "n1")
    turns = 0
    while not loop.turn():
        loop.queue.announce(H)
        turns += 1
        assert turns < 10


def test_an_idle_queue_schedules_no_turns(loop: Loop) -> None:
    loop.submit(H, "h")
    assert loop.timers.soon == []
    loop.submit(N, "n")
    for _ in range(3):
        loop.turn()
    assert loop.done == ["h", "n"]
    assert loop.timers.soon == []


def test_every_turn_has_a_new_budget(loop: Loop) -> None:
    loop.submit(N, "n1", takes=BUDGET)
    loop.turn()
    loop.submit(N, "n2", takes=BUDGET)
    assert loop.done == ["n1", "n2"]


def test_work_that_is_awaited_returns_its_result_or_raises_its_error() -> None:
    def fail() -> None:
        raise ValueError("of the work")

    async def run() -> None:
        queue = WorkQueue(ThreeClasses(), ManualClock(), asyncio.get_running_loop(), budget=0)
        for importance in (H, N):
            assert await in_turn(queue, importance, lambda: "result") == "result"
            with pytest.raises(ValueError, match="of the work"):
                await in_turn(queue, importance, fail)

    asyncio.run(run())


def test_work_of_a_cancelled_task_is_not_done() -> None:
    done: list[str] = []

    async def run() -> None:
        queue = WorkQueue(ThreeClasses(), ManualClock(), asyncio.get_running_loop(), budget=0)
        tasks = [
            asyncio.create_task(in_turn(queue, N, partial(done.append, name)))
            for name in ("cancelled", "other")
        ]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.wait(tasks)

    asyncio.run(run())
    assert done == ["other"]
