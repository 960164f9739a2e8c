"""Migration in a running server: plans are searched in another process, shown, and dropped by a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.support.plans.rewriting_steps import STREAMS
from tests.support.services.query_service import Service, served

from mavstream_protocol.plans.plan import Plan
from mavstream_server.core.metrics import Latency, OperatorMetrics, QueryMetrics
from mavstream_server.optimizer.plan_searcher import FRESH_S, PlanSearcher
from mavstream_server.optimizer.running_plans import SearchedQuery
from mavstream_server.planning.rewriting.choice import PlanSubject
from mavstream_server.supervisor.engine_link import EngineRefused

Nodes = dict[str, Any]


def selects(first: str, second: str) -> Plan:
    """Return a plan with two selects in a row, named after their conditions."""
    wheres = {"warm": "temp > 20", "hall": "room = 'hall'"}
    nodes = {
        "in": {"op": "source", "stream": "readings"},
        first: {"op": "select", "input": "in", "where": wheres[first]},
        second: {"op": "select", "input": first, "where": wheres[second]},
    }
    return Plan.parse({"root": second, "nodes": nodes})


REGISTERED, OTHER = selects("warm", "hall"), selects("hall", "warm")


def test_a_query_shows_the_plan_that_runs_beside_the_registered_one(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        queries = service.queries
        spec = {"name": "q", "plan": REGISTERED.model_dump(mode="json", exclude_none=True)}
        id_ = (await queries.register(spec)).id
        await service.feed(19, 21, 22)
        await service.answers(id_, 2)
        assert (await queries.views.plan(id_)).running is None

        await queries.migrate_plan(id_, OTHER)
        await migrated(service, id_, 1)
        shown = await queries.views.plan(id_)
        assert (shown.plan, shown.running, shown.swaps, shown.swap) == (REGISTERED, OTHER, 1, None)
        assert shown.paths == (("in", "hall", "warm"),)
        assert [operator.name for operator in shown.operators] == ["in", "hall", "warm", "#output"]
        (placed,) = (await queries.views.global_plan()).queries
        assert [edge.to for edge in placed.edges] == ["in", "hall", "warm", "#output"]
        await service.feed(23, 18)
        assert [row["temp"] for row in await service.answers(id_, 3)] == [21, 22, 23]
        (found,) = await queries.views.searched([id_, "unknown"])
        assert (found.subject.plan, found.sources) == (OTHER, {"in": "readings"})
        measured = queries.get(id_).plan_of(found.metrics)
        assert measured is not None
        assert measured.paths() == (("in", "hall", "warm"),)

        with pytest.raises(EngineRefused, match="give a plan with the same columns") as refused:
            await queries.migrate_plan(id_, selects_less())
        assert refused.value.code == "swap_refused"
        assert (await queries.views.plan(id_)).running == OTHER

        await queries.migrate_plan(id_, REGISTERED)
        await migrated(service, id_, 2)
        assert (await queries.views.plan(id_)).running is None

        await queries.migrate_plan(id_, OTHER)
        await migrated(service, id_, 3)
        await service.kill_engine()
        queries.metrics.forget(id_)
        shown = await queries.views.plan(id_)
        assert (shown.running, shown.swaps) == (None, 0)
        assert [operator.name for operator in shown.operators] == ["in", "warm", "hall", "#output"]

        await queries.remove(id_)

    served(test, tmp_path)


async def migrated(service: Service, id_: str, times: int) -> None:
    """Wait until a query has migrated a number of times."""

    async def count() -> int:
        service.queries.metrics.forget(id_)
        return (await service.queries.views.plan(id_)).swaps

    while await count() < times:
        await asyncio.sleep(0)


def selects_less() -> Plan:
    nodes = {
        "in": {"op": "source", "stream": "readings"},
        "p": {"op": "project", "input": "in", "compute": {"temp": "temp"}},
    }
    return Plan.parse({"root": "p", "nodes": nodes})


# The plan searcher


def metrics(name: str, selectivity: float, tuples: int) -> OperatorMetrics:
    return OperatorMetrics(
        name=name, operator="select", kind="operational", state="ready", queued=0, queued_bytes=0,
        state_bytes=0, cost_per_tuple_ns=50.0, selectivity=selectivity, tuples=tuples, rows_out=0,
        counters={},
    )  # fmt: skip


class Running:
    """A query with two selects in a row and scripted metrics."""

    def __init__(self) -> None:
        nodes = {
            "in": {"op": "source", "stream": "readings"},
            "a": {"op": "select", "input": "in", "where": "temperature > 20"},
            "b": {"op": "select", "input": "a", "where": "home = 3"},
        }
        self.plan = Plan.parse({"root": "b", "nodes": nodes})
        self.rows = 0
        self.passing = (0.1, 0.9)
        self.version = 0
        self.swap: str | None = None

    async def searched(self, ids: Iterable[str]) -> list[SearchedQuery]:
        source = metrics("in", 1.0, self.rows)._replace(kind="source", rows_out=self.rows)
        operators = (source, *(metrics(name, p, 1000) for name, p in zip("ab", self.passing, strict=True)))
        stats = QueryMetrics(
            id="q", state="running", reason=None, class_name="default", epoch=1, offset=0, rows_in=0,
            rows_out=0, queued_bytes=0, state_bytes=0, backlog_bytes=0, latency=Latency(), counters={},
            positions={}, operators=operators, plan_version=self.version, migration=self.swap,
        )  # fmt: skip
        subject = PlanSubject(self.plan, {"readings": STREAMS["readings"]})
        return [SearchedQuery("q", subject, {"in": "readings"}, stats)] if "q" in ids else []


def test_the_searcher_finds_a_cheaper_plan_when_selectivities_change() -> None:
    async def test() -> None:
        now = 0.0
        query = Running()
        searcher = PlanSearcher(query.searched, lambda: now)

        async def later(seconds: float, rows: int) -> dict[str, float]:
            nonlocal now
            now += seconds
            query.rows += rows
            return {id_: found.saving for id_, found in (await searcher.search(["q"])).items()}

        try:
            assert await later(0, 0) == {}  # nothing was measured yet
            assert await later(FRESH_S, 0) == {}  # nothing was read: no plan is cheaper than another
            found = await later(FRESH_S, 10_000)
            assert found["q"] < 0.2  # `a` drops most rows, and comes first
            query.passing = (0.9, 0.1)
            assert await later(1, 1000) == found  # searched a second ago
            assert (await later(FRESH_S, 10_000))["q"] > 0.2
            best = searcher.alternates["q"]
            assert best.cheapest.cost < 0.8 * best.running.cost
            query.swap = "warming"
            await later(1, 1000)
            assert searcher.migrating == {"q"}
            query.swap, query.version = None, 1
            assert await later(1, 1000) == {}  # another plan runs
            assert await searcher.search([]) == {}
        finally:
            await searcher.stop()

    asyncio.run(test())
