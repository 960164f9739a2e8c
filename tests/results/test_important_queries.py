"""Results of important queries are sent first, and others wait for their turn."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.services.result_log import Answers, Query

from mavstream_server.core.event_loop.work_queue import WorkQueue
from mavstream_server.core.importance import AllEqual
from mavstream_server.results.service import ResultService
from mavstream_server.testing import ManualClock

LIMIT = 10  # seconds, far more than any wait takes


class ByQuery(AllEqual):
    """The importance of queries, as a test says."""

    highest = 6

    def __init__(self, **queries: int) -> None:
        self.queries = queries
        self.version = 0

    def of_query(self, id_: str) -> int:
        return self.queries[id_]


def several(path: Path, service: ResultService, *ids: str) -> dict[str, Answers]:
    made = {}
    for id_ in ids:
        made[id_] = Answers(path, service=service, query=Query(id_))
        made[id_].answer(1, ring=False)
    return made


def deliveries(path: Path, importance: ByQuery, budget: int, *, change: bool = False) -> list[str]:
    """Return the order in which waiting subscribers of three queries get their rows after one doorbell."""
    order: list[str] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        work = WorkQueue(importance, ManualClock(), loop, budget=budget)
        service = ResultService(path, importance=importance, work=work)
        queries = several(path, service, "n", "m", "h")

        async def subscriber(id_: str) -> None:
            with queries[id_].subscribe() as subscription:
                await subscription.next()
                await subscription.next()
                waiting.release()
                await subscription.next()
                order.append(id_)

        waiting = asyncio.Semaphore(0)
        tasks = [asyncio.create_task(subscriber(id_)) for id_ in queries]
        for _ in tasks:
            await waiting.acquire()
        for _ in range(20):
            await asyncio.sleep(0)
        for answers in queries.values():
            answers.answer(1, ring=False)
        if change:
            importance.queries["n"], importance.version = 6, 1
            importance.queries["h"] = 1
        service.doorbell()
        await asyncio.wait_for(asyncio.gather(*tasks), LIMIT)
        for answers in queries.values():
            answers.__exit__(None, None, None)

    asyncio.run(run())
    return order


def test_subscribers_of_important_queries_are_served_first(tmp_path: Path) -> None:
    assert deliveries(tmp_path, ByQuery(n=1, m=3, h=6), budget=1_000_000) == ["h", "m", "n"]


def test_the_order_holds_when_others_wait_for_their_turn(tmp_path: Path) -> None:
    assert deliveries(tmp_path, ByQuery(n=1, m=3, h=6), budget=0) == ["h", "m", "n"]


def test_a_new_priority_changes_the_order_of_subscribers_that_wait_already(tmp_path: Path) -> None:
    assert deliveries(tmp_path, ByQuery(n=1, m=3, h=6), budget=1_000_000, change=True) == ["n", "m", "h"]
