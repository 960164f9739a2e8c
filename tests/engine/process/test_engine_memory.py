"""Memory limits of the engine process: the query that holds most fails, and nobody for freed memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.conftest import MakeStream
from tests.support.engine.shared_pipelines import Bench, readings_of
from tests.support.services.engine_link import Events, Readings, drive

from mavstream_server.engine.process.engine_memory import EngineMemory
from mavstream_server.engine.process.messages import StartQuery
from mavstream_server.engine.states import QueryState
from mavstream_server.supervisor.engine_link import EngineLink
from mavstream_server.testing import ManualClock, PlanRun

SECOND = 1_000_000_000


def grouped(by: str) -> dict[str, Any]:
    """Return a plan that holds one group per value until an hour is over."""
    window = {"kind": "tumbling", "size": "1h"}
    return {
        "in": {"op": "source", "stream": "readings"},
        "key": {"op": "project", "input": "in", "compute": {"ts": "ts", "k": by}},
        "out": {
            "op": "aggregate",
            "input": "key",
            "window": window,
            "by": ["k"],
            "compute": {"n": "count(*)"},
        },
    }


class Process:
    """What a process has allocated: what its queries hold, and memory that they have freed."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.freed = 0
        self.returned = 0

    def allocated(self) -> int:
        return self.freed + sum(query.resident for query in self._bench.engine.queries.values())

    def return_freed(self) -> None:
        self.returned += 1
        self.freed = 0


@pytest.fixture
def bench(stream: MakeStream, clock: ManualClock) -> Bench:
    return Bench(readings_of(stream), clock, train=4096)


def two_queries(bench: Bench) -> tuple[PlanRun, PlanRun]:
    """Return a query with two groups and one with thousands."""
    runs = bench.start("small", grouped("x % 2")), bench.start("large", grouped("x"))
    bench.readings.rows(*[(x, x) for x in range(5000)])
    bench.engine.run()
    return runs


def test_the_query_that_holds_most_fails_and_the_others_go_on(bench: Bench) -> None:
    small, large = two_queries(bench)
    process = Process(bench)
    limit = process.allocated() - 1
    memory = EngineMemory(bench.engine, limit, process.allocated, process.return_freed)
    memory.check(SECOND)
    assert (small.query.state, large.query.state) == (QueryState.RUNNING, QueryState.FAILED)
    reason = large.query.reason or ""
    assert f"more than its limit of {limit}, and query 'large' holds most" in reason
    assert "in operator 'out'" in reason
    assert "--engine-memory" in reason
    memory.check(2 * SECOND)
    assert small.query.active


def test_no_query_fails_for_memory_that_was_freed(bench: Bench) -> None:
    small, large = two_queries(bench)
    process = Process(bench)
    process.freed = 1 << 30
    limit = process.allocated() - 1
    EngineMemory(bench.engine, limit, process.allocated, process.return_freed).check(SECOND)
    assert process.returned == 1
    assert small.query.active
    assert large.query.active


def test_no_query_fails_that_holds_little_of_what_is_allocated(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    small, large = two_queries(bench)
    process = Process(bench)
    memory = EngineMemory(bench.engine, 1 << 30, lambda: 2 << 30, process.return_freed)
    for seconds in range(1, 10):
        memory.check(seconds * SECOND)
    assert small.query.active
    assert large.query.active
    assert "no query holds much of it" in caplog.text
    assert process.returned == 1, "an effort without effect is not repeated at once"


def test_an_engine_process_above_its_limit_fails_a_query_that_it_names(tmp_path: Path) -> None:
    with Readings(tmp_path) as readings:

        async def script(link: EngineLink, events: Events) -> None:
            await link.attach_stream("readings")
            await link.start_query(StartQuery("q", readings.plan(_HELD)))
            readings.append(10, 30, 40)
            link.ring()
            await events.until(lambda: events.ended, "the query to fail")
            ((id_, state, reason),) = events.ended
            assert (id_, state) == ("q", "failed")
            assert "more than its limit of 1000, and query 'q' holds most" in (reason or "")

        drive(tmp_path, script, engine_memory=1000)


def test_queries_without_a_limit_have_that_of_the_process(tmp_path: Path) -> None:
    with Readings(tmp_path) as readings:

        async def script(link: EngineLink, events: Events) -> None:
            await link.attach_stream("readings")
            await link.start_query(StartQuery("own", readings.plan(_HELD), memory_limit=1 << 30))
            await link.start_query(StartQuery("default", readings.plan(_HELD)))
            readings.append(*range(300))
            link.ring()
            await events.until(lambda: events.ended, "the query to fail")
            assert [(id_, state) for id_, state, _ in events.ended] == [("default", "failed")]
            assert "more than its limit of 1000" in (events.ended[0][2] or "")

        drive(tmp_path, script, query_memory=1000)


_HELD: dict[str, Any] = {
    "in": {"op": "source", "stream": "readings"},
    "out": {
        "op": "aggregate",
        "input": "in",
        "window": {"kind": "tumbling", "size": "1h"},
        "by": ["temp"],
        "compute": {"n": "count(*)"},
    },
}
