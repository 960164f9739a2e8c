"""The plan of a query shows paths, segments and simplified segments with capacities, and states."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conftest import MakeStream
from tests.support.engine.shared_pipelines import Bench, readings_of, shares

from mavstream_protocol import Plan, StreamShape
from mavstream_protocol.plans.inference import infer
from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_protocol.wire.plans import OperatorUnit
from mavstream_protocol.wire.resources import OperatorInfo
from mavstream_server.core.metrics import OperatorMetrics
from mavstream_server.engine.reporting import query_metrics
from mavstream_server.queries.views.metrics import operator_info
from mavstream_server.queries.views.plan_units import PlanUnits
from mavstream_server.testing import ManualClock

PAIR = {"op": "join", "left": "p1", "right": "p2", "window": {"kind": "tumbling", "size": "1s"},
        "on": [["x", "x"]], "compute": {"x": "l.x"}}  # fmt: skip
NODES: dict[str, Any] = {
    "left": {"op": "source", "stream": "s"},
    "s1": {"op": "select", "input": "left", "where": "x > 1"},
    "p1": {"op": "project", "input": "s1", "compute": {"x": "x"}},
    "right": {"op": "source", "stream": "s"},
    "s2": {"op": "select", "input": "right", "where": "x > 2"},
    "p2": {"op": "project", "input": "s2", "compute": {"x": "x"}},
    "j": PAIR,
    "s3": {"op": "select", "input": "j", "where": "x > 3"},
}
PLAN = infer(
    Plan.parse({"root": "s3", "nodes": NODES}), {"s": StreamShape(Schema((Field("x", FieldType.INT),)))}
)


def metrics(
    name: str, cost: float, selectivity: float, size: float, size_in: float = 64.0, kind: str = "operational"
) -> OperatorMetrics:
    operator = {"j": "join", "#output": "output"}.get(name, "source" if kind == "source" else "select")
    return OperatorMetrics(
        name, operator, kind, "ready", 3, 192, 0, cost, selectivity, 500, 0, {}, 1, (), size, size_in
    )


# As in the tests of the policies that run these units; times are nanoseconds.
STATS = (
    metrics("left", 20, 1.0, 100, kind="source"),
    metrics("s1", 1700, 0.70, 100, 100),
    metrics("p1", 2100, 1.0, 70),
    metrics("right", 20, 1.0, 100, kind="source"),
    metrics("s2", 3900, 0.26, 100, 100),
    metrics("p2", 1300, 1.0, 70),
    metrics("j", 12160, 0.56, 140),
    metrics("s3", 2000, 0.70, 140),
    metrics("#output", 100, 0.0, 64, kind="output"),
)


def released(units: tuple[OperatorUnit, ...]) -> dict[str, float]:
    return {" ".join(one.operators): one.memory_release_capacity for one in units}


def test_paths_segments_and_simplified_segments_have_the_capacities_of_the_thesis() -> None:
    units = PlanUnits(PLAN, STATS)
    assert {" ".join(one.operators): 1e9 / one.processing_capacity for one in units.paths} == pytest.approx(
        {"s1 p1 j s3 #output": 12493.44, "s2 p2 j s3 #output": 7700.992}
    )
    assert released(units.segments) == pytest.approx(
        {
            "s1": 1e9 * 30 / 1700,
            "p1": 1e9 * 30 / 2100,
            "j": 1e9 * -8.4 / 12160,
            "s3 #output": 1e9 * 42 / 2070,
            "s2 p2": 1e9 * (100 - 0.26 * 70) / (3900 + 0.26 * 1300),
        }
    )
    assert [one.operators for one in units.simplified_segments] == [
        ("s1",),
        ("p1", "j", "s3", "#output"),
        ("s2", "p2"),
    ]


def test_operators_have_their_own_capacities() -> None:
    shown = {one.name: one for one in PlanUnits(PLAN, STATS).described(map(operator_info, STATS))}
    assert (shown["s1"].processing_capacity, shown["s1"].memory_release_capacity) == (
        pytest.approx(1e9 / 1700),
        pytest.approx(1e9 * 30 / 1700),
    )
    assert shown["j"].memory_release_capacity == pytest.approx(1e9 * -8.4 / 12160)
    assert shown["left"].processing_capacity is None
    assert (shown["s3"].state, shown["s3"].tuple_bytes) == ("ready", 140)


def test_metrics_of_another_plan_are_ignored() -> None:
    units = PlanUnits(PLAN, STATS[:3])
    assert (units.paths, units.segments, units.simplified_segments) == ((), (), ())
    infos: list[OperatorInfo] = [operator_info(one) for one in STATS[:3]]
    assert units.described(infos) == tuple(infos)


def test_the_plan_is_complete_where_a_prefix_is_shared(stream: MakeStream, clock: ManualClock) -> None:
    bench = Bench(readings_of(stream), clock, train=256)
    hot = {
        "in": {"op": "source", "stream": "readings"},
        "hot": {"op": "select", "input": "in", "where": "x >= 10"},
    }
    runs = [
        bench.start("first", {**hot, "out": {"op": "project", "input": "hot", "compute": {"y": "x + 1"}}}),
        bench.start("second", {**hot, "out": {"op": "project", "input": "hot", "compute": {"y": "x * 2"}}}),
    ]
    bench.feed(*range(300))
    assert shares(*runs)
    bench.feed(*range(300, 900))
    query = runs[0].query
    units = PlanUnits(query.request.plan, query_metrics(query, 1).operators)
    assert [one.operators for one in units.paths] == [("hot", "out", "#output")]
    assert {name for one in units.segments for name in one.operators} == {"hot", "out", "#output"}
