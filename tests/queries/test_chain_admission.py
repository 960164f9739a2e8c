"""Admission of queries that read other queries: their rates, and estimates beside those of the whole plan."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.queries.test_admission_control import answers, totals
from tests.support.services.query_service import Service, service

from mavstream_protocol import QueryClass
from mavstream_protocol.admission import AdmissionEstimate, Outlook
from mavstream_server.core.metrics import ClassMetrics
from mavstream_server.optimizer.admission.load import Arrivals, LoadSample

QOS = {"latency": {"mean": "10ms", "tolerance": "0%"}}
RATE = 200_000.0
SHARE = 0.25
HOT = {"op": "select", "input": "in", "where": "temp > 20", "hints": {"selectivity": SHARE}}
MEANS = {
    "op": "aggregate",
    "by": ["room"],
    "window": {"kind": "tumbling", "size": "1s"},
    "compute": {"mean": "avg(temp)"},
}
BELOW = {"root": "hot", "nodes": {"in": {"op": "source", "stream": "readings"}, "hot": HOT}}
ABOVE = {
    "root": "means",
    "nodes": {"in": {"op": "source", "query": "hot"}, "means": {**MEANS, "input": "in"}},
}
WHOLE = {
    "root": "means",
    "nodes": {
        "in": {"op": "source", "stream": "readings"},
        "hot": HOT,
        "means": {**MEANS, "input": "hot"},
    },
}


def run(test: Callable[[Service], Awaitable[None]], data: Path) -> None:
    async def main() -> None:
        async with service(data, engine=False) as made:
            made.catalog.put_class(QueryClass(name="slow", priority=1))
            made.catalog.put_class(QueryClass(name="alarms", priority=9))
            await test(made)

    asyncio.run(main())


def seen(made: Service, busy: dict[str, float], *, rate: float = RATE, results: float | None = None) -> None:
    """Give the service ten seconds of metrics; `results` per second were measured of the query below."""
    watch = made.queries.load
    watch.load.forget()
    for at in (10.0, 20.0):
        classes = {name: ClassMetrics(5, 0, 0, 0, 0, 0, answers(2.0, int(at))) for name in busy}
        rows = {"readings": Arrivals(rate * at, 100 * at)}
        if results is not None:
            rows["hot"] = Arrivals(results * at, results * at)
        watch.load.add(LoadSample(at, totals(at, busy), classes, rows))
        watch.looks += 1


async def estimated(made: Service, plan: dict[str, Any], class_: str = "default") -> AdmissionEstimate:
    found = await made.queries.validate({"name": "new", "plan": plan, "qos": QOS, "class": class_})
    assert found.admission is not None
    return found.admission


async def register_below(made: Service, class_: str = "default") -> None:
    await made.queries.register({"name": "hot", "plan": BELOW, "class": class_})


def test_the_rate_is_that_at_which_the_query_below_is_expected_to_answer(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        seen(made, {"default": 0.2})
        await register_below(made)
        assert (await estimated(made, ABOVE)).rows_per_s == pytest.approx(RATE * SHARE)
        await made.queries.register({"name": "means", "plan": ABOVE})
        top = {
            "root": "warm",
            "nodes": {
                "in": {"op": "source", "query": "means"},
                "warm": {"op": "select", "input": "in", "where": "mean > 30"},
            },
        }
        # A row per second and room: as many as are expected of the whole plan.
        planned = await made.queries.planner.plan({"name": "whole", "plan": WHOLE})
        history, arrivals = made.queries.load.experience, {"readings": Arrivals(RATE, 100)}
        expected = history.operators(planned.plan, arrivals).rates[planned.plan.root]
        assert (await estimated(made, top)).rows_per_s == pytest.approx(expected)

    run(test, tmp_path)


def test_the_measured_rate_is_preferred(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        seen(made, {"default": 0.2}, results=1234.0)
        await register_below(made)
        assert (await estimated(made, ABOVE)).rows_per_s == pytest.approx(1234)
        seen(made, {"default": 0.2}, results=0.0)  # rarer than measurements
        assert (await estimated(made, ABOVE)).rows_per_s == pytest.approx(RATE * SHARE)

    run(test, tmp_path)


def test_a_chain_is_expected_to_do_as_the_whole_plan_does(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        seen(made, {"default": 0.2})
        whole, below = await estimated(made, WHOLE), await estimated(made, BELOW)
        assert below.utilisation.after is not None
        await register_below(made)
        # As the engine is measured when the query below runs, and is not among recent admissions any more.
        made.queries.admission._recent.pending(float("inf"))
        seen(made, {"default": below.utilisation.after})
        chain = await estimated(made, ABOVE)
        assert chain.utilisation.after == pytest.approx(whole.utilisation.after, rel=0.1)
        (one,), (two,) = whole.targets, chain.targets
        assert one.expected is not None
        assert two.expected == pytest.approx(one.expected, rel=0.25)
        assert two.expected > one.expected  # rows wait for a second turn
        assert (one.kept, two.kept) == (Outlook.YES, Outlook.YES)

    run(test, tmp_path)


def test_rows_wait_in_the_class_of_the_query_below_first(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        busy = {"slow": 0.3, "alarms": 0.1}
        seen(made, busy)
        await register_below(made, "slow")
        (alone,) = (await estimated(made, BELOW, "alarms")).targets
        (above,) = (await estimated(made, ABOVE, "alarms")).targets
        assert alone.expected is not None
        assert above.expected is not None
        assert above.expected > alone.expected
        seen(made, {"slow": 0.95, "alarms": 0.1})
        (target,) = (await estimated(made, ABOVE, "alarms")).targets
        assert (target.kept, target.expected) == (Outlook.NO, None)
        assert "class 'slow' needs" in target.reason

    run(test, tmp_path)


def test_without_rows_below_no_estimate_is_made(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        seen(made, {"default": 0.2}, rate=0.0)
        await register_below(made)
        (target,) = (await estimated(made, ABOVE)).targets
        assert target.kept is Outlook.UNKNOWN
        assert "'hot'" in target.reason

    run(test, tmp_path)
