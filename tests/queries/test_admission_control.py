"""Admission control in the service: answers of registration and validation on scripted metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.support.services.query_service import HOT, HOT_PLAN, Service, service

from mavstream_protocol import QueryClass
from mavstream_protocol.admission import AdmissionPolicy, Outlook
from mavstream_server.core.errors import NotAdmitted
from mavstream_server.core.metrics import (
    ClassMetrics,
    EngineMetrics,
    EngineReport,
    Latency,
    OperatorMetrics,
    QueryMetrics,
)
from mavstream_server.optimizer.admission.load import Arrivals, LoadSample
from mavstream_server.queries.load_watch import LoadWatch
from mavstream_server.queries.views.metrics import MetricsCache

QOS = {"latency": {"mean": "10ms", "tolerance": "0%"}}
FAST = Arrivals(1_000_000.0, 100.0)
QUIET = Arrivals(0.0, 0.0)


def totals(at: float, busy: dict[str, float], turns: float = 1000.0) -> EngineMetrics:
    """Return the totals of an engine that was up for some time with a given utilisation."""
    spent = {name: int(share * at * 1e9) for name, share in busy.items()}
    return EngineMetrics(7, "cqc", int(at * 1e9), sum(spent.values()), spent, int(turns * at), (), 0, 0)


def answers(mean_ms: float, count: int) -> Latency:
    ns = int(mean_ms * 1e6)
    return Latency(count, count * ns, ns, {8 * (ns.bit_length() - 1): count})


def seen(made: Service, busy: dict[str, float], arrivals: Arrivals = FAST, mean_ms: float = 2.0) -> None:
    """Give the service ten seconds of metrics of an engine."""
    watch = made.queries.load
    watch.load.forget()
    for at in (10.0, 20.0):
        classes = {name: ClassMetrics(5, 0, 0, 0, 0, 0, answers(mean_ms, int(at))) for name in busy}
        rates = {"readings": Arrivals(arrivals.rows * at, arrivals.frames * at)}
        watch.load.add(LoadSample(at, totals(at, busy), classes, rates))
        watch.looks += 1


def run(test: Callable[[Service], Awaitable[None]], data: Path, **settings: Any) -> None:
    async def main() -> None:
        async with service(data, engine=False, **settings) as made:
            made.catalog.put_class(QueryClass(name="alarms", priority=9))
            await test(made)

    asyncio.run(main())


def test_a_query_with_enough_capacity_is_registered_with_its_estimate(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        seen(made, {"default": 0.2})
        found = (await made.queries.register({**HOT, "qos": QOS})).admission
        assert found is not None
        assert (found.policy, found.admitted, found.warnings) == (AdmissionPolicy.WARN, True, ())
        assert found.targets[0].kept is Outlook.YES
        assert found.cost_us_per_s > 1_000_000 * 0.05  # a million rows at the source, in the select and out
        assert found.rows_per_s == pytest.approx(1_000_000)
        assert found.utilisation.before == pytest.approx(0.2)

    run(test, tmp_path)


def test_a_query_without_enough_capacity_is_refused_with_numbers_and_not_stored(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        seen(made, {"default": 0.98})
        with pytest.raises(NotAdmitted, match=r"^query 'hot' is not admitted: mean is expected") as caught:
            await made.queries.register({**HOT, "qos": QOS}, "key")
        problem = caught.value.problem()
        assert (problem.status, problem.code) == (409, "not_admitted")
        assert [(item.pointer, item.code) for item in problem.errors] == [
            ("qos/latency", "target_cannot_be_kept")
        ]
        assert "instead of 98%" in problem.detail
        assert "'spark'" not in problem.detail  # micro-batches do not answer in 10 ms
        assert "admission 'warn'" in problem.detail
        assert made.catalog.count_queries() == 0
        # Where another engine does the work, nothing here is estimated.
        elsewhere = await made.queries.register({**HOT, "name": "elsewhere", "qos": QOS, "backend": "spark"})
        assert elsewhere.admission is None
        # Without a target there is nothing to miss; and the key was not used.
        assert (await made.queries.register(HOT, "key")).admission is not None

    run(test, tmp_path, admission="refuse")


def test_a_query_that_can_wait_is_told_of_the_other_backend(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        seen(made, {"default": 1.2})
        later = {**HOT, "qos": {"latency": {"mean": "10s", "tolerance": "0%"}}}
        found = (await made.queries.validate(later)).admission
        assert found is not None
        assert (found.admitted, found.other_backend) == (False, "spark")
        with pytest.raises(NotAdmitted, match="run it with backend 'spark'"):
            await made.queries.register(later)
        by_rows = {"op": "distinct", "input": "hot", "window": {"kind": "tumbling", "size": 10}}
        plan = {"root": "last", "nodes": {**HOT_PLAN["nodes"], "last": by_rows}}
        refused = await made.queries.validate({**later, "plan": plan})
        assert refused.admission is not None
        assert (refused.admission.admitted, refused.admission.other_backend) == (False, None)
        server, spark = refused.validation().backends
        assert (server.name, server.supported) == ("server", True)
        assert (spark.name, spark.supported) == ("spark", False)
        assert spark.reasons == ("last: windows by rows are not supported, only windows by time",)

    run(test, tmp_path, admission="refuse")


def test_validation_gives_the_same_estimate_and_calls_the_query_valid(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        seen(made, {"default": 0.98})
        found = await made.queries.validate({**HOT, "qos": QOS})
        assert found.validation().valid
        assert found.admission is not None
        assert not found.admission.admitted
        alone = await made.queries.validate(HOT_PLAN)
        assert alone.admission is not None
        assert (alone.admission.targets, alone.admission.admitted) == ((), True)
        alarm = await made.queries.validate({**HOT, "qos": QOS, "class": "alarms"})
        assert alarm.admission is not None
        assert alarm.admission.admitted

    run(test, tmp_path, admission="refuse")


def test_with_the_policy_warn_a_query_is_registered(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        seen(made, {"default": 0.98})
        info = await made.queries.register({**HOT, "qos": QOS})
        assert info.admission is not None
        assert info.admission.warnings[0].startswith("its latency target cannot be met: mean is expected")
        assert made.catalog.count_queries() == 1
        assert (await made.queries.views.info(info.id)).admission is None  # metrics are shown instead

    run(test, tmp_path)


def test_the_admission_policy_can_be_changed_while_the_server_runs(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        seen(made, {"default": 0.98})
        made.admission = AdmissionPolicy.OFF
        assert (await made.queries.register({**HOT, "qos": QOS})).admission is None
        assert (await made.queries.validate(HOT)).admission is None
        made.admission = AdmissionPolicy.REFUSE
        with pytest.raises(NotAdmitted):
            await made.queries.register({**HOT, "qos": QOS})

    run(test, tmp_path)


def test_without_metrics_or_rows_no_estimate_is_made(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        first = await made.queries.register({**HOT, "qos": QOS})
        assert first.admission is not None
        assert first.admission.targets[0].reason.startswith("unknown: the engine was not measured")
        seen(made, {"default": 0.98}, arrivals=QUIET)
        second = await made.queries.register({**HOT, "qos": QOS})
        assert second.admission is not None
        assert second.admission.targets[0].kept is Outlook.UNKNOWN
        assert "'readings'" in second.admission.targets[0].reason

    run(test, tmp_path, admission="refuse")


def test_a_query_that_would_make_running_ones_miss_is_refused(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        seen(made, {"alarms": 0.3, "default": 0.3})
        tight = await made.queries.register({**HOT, "name": "fire", "qos": QOS, "class": "alarms"})
        made.queries.get(tight.id).placed = True  # as if there were an engine
        seen(made, {"alarms": 0.3, "default": 0.3}, mean_ms=9.0)
        found = (await made.queries.validate({**HOT, "class": "alarms"})).admission
        assert found is not None
        assert [one.query for one in found.endangered] == [tight.id]
        with pytest.raises(NotAdmitted, match=f"'{tight.id}'") as caught:
            await made.queries.register({**HOT, "class": "alarms"})
        assert caught.value.errors[0].pointer == "class"

    run(test, tmp_path, admission="refuse")


def test_in_a_burst_each_new_query_counts_with_those_before_it(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        seen(made, {"default": 0.2})
        used: list[float] = []

        async def register_many() -> None:
            for _ in range(50):
                found = (await made.queries.register({**HOT, "qos": QOS})).admission
                assert found is not None
                used.append(found.utilisation.before or 0.0)

        with pytest.raises(NotAdmitted):
            await register_many()
        assert len(used) > 3
        assert used == sorted(used)
        assert used[-1] > 0.5

    run(test, tmp_path, admission="refuse")


def test_estimates_of_one_sample_are_computed_once(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        seen(made, {"default": 0.2})
        control, asked = made.queries.admission, 0
        targets = control._all_targets

        def counted() -> Iterable[Any]:
            nonlocal asked
            asked += 1
            return targets()

        control._all_targets = counted
        for _ in range(10):
            await made.queries.register(HOT)
        assert asked == 1

    run(test, tmp_path)


# Sampling


class ScriptedEngine:
    """Metrics as an engine would give them."""

    def __init__(self) -> None:
        self.at = 0.0
        self.there = True
        self.asked: list[tuple[str, ...]] = []

    async def engine_metrics(self) -> EngineMetrics:
        return totals(self.at, {"default": 0.5})

    async def class_metrics(self) -> dict[str, ClassMetrics]:
        return {"default": ClassMetrics(1, 0, 0, 0, 0, 0, Latency())}

    async def metrics(self, ids: Iterable[str] | None = None) -> EngineReport:
        wanted = tuple(ids or ())
        self.asked.append(wanted)
        select = OperatorMetrics("hot", "select", "operational", "ready", 0, 0, 0, 1000.0, 0.5, 1000, 0, {})
        found = {id_: _query(id_, (select,)) for id_ in wanted}
        return EngineReport(await self.engine_metrics(), found)


def _query(id_: str, operators: tuple[OperatorMetrics, ...]) -> QueryMetrics:
    return QueryMetrics(id_, "running", None, "default", 1, 0, 0, 0, 0, 0, 0, Latency(), {}, {}, operators)


def test_samples_take_the_load_and_learn_from_queries_in_turn(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        engine, now = ScriptedEngine(), 0.0
        queries = [made.queries.get((await made.queries.register(HOT)).id) for _ in range(25)]
        queries.sort(key=lambda query: query.id)
        for query in queries:
            query.placed = True
        watch = LoadWatch(MetricsCache(engine, lambda: now), made.streams, made.queries.registry)
        plan = queries[0].plan
        assert plan is not None
        rates = {"readings": Arrivals(1000.0, 1.0)}
        before = watch.experience.assess(plan, rates)
        for _ in range(3):
            now, engine.at = now + 2.0, engine.at + 2.0
            await made.feed(*range(100))
            await watch.look()
        assert watch.load.utilisation == pytest.approx(0.5)
        assert watch.load.arrivals("readings") == (pytest.approx(50), pytest.approx(0.5))
        assert [len(ids) for ids in engine.asked] == [20, 5, 20]
        assert engine.asked[1] == tuple(query.id for query in queries[20:])
        # A select that was measured at 1 us a row, where 35 ns were guessed.
        assert watch.experience.assess(plan, rates).work > before.work + 1000 * 0.9e-6

    run(test, tmp_path)
