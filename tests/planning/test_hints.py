"""Hints on nodes: declared selectivity, cost and size are used until measured, and change no answer."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conftest import MakeStream
from tests.support.engine.shared_pipelines import Bench, readings_of, shares

from mavstream import stream as build_stream
from mavstream_protocol import InvalidPlan, Plan, StreamShape, format_cost, parse_cost
from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import SplitNode
from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_server.core.metrics import OperatorMetrics
from mavstream_server.engine.migration.reuse import kept_nodes
from mavstream_server.engine.sharing.prefix import prefixes
from mavstream_server.optimizer.admission.cost_history import CostHistory
from mavstream_server.optimizer.admission.load import Arrivals
from mavstream_server.planning.rewriting.alternates import Alternate, alternates
from mavstream_server.planning.rewriting.canonical import canonical, wording
from mavstream_server.planning.rewriting.costing.metrics import PlanMetrics
from mavstream_server.planning.run_options import RunOptions
from mavstream_server.scheduling.statistics import PUBLISH_EVERY, Statistics
from mavstream_server.testing import ManualClock

SHAPES = {"readings": StreamShape(Schema((Field("x", FieldType.INT), Field("y", FieldType.INT))))}
HINTS = {"selectivity": 0.2, "cost": "20us", "size": "16B"}
RATE = {"readings": 1000.0}


def chain(*steps: dict[str, Any]) -> Plan:
    """Return a plan of selects, s1 first."""
    nodes: dict[str, Any] = {"in": {"op": "source", "stream": "readings"}}
    for step in steps:
        nodes[f"s{len(nodes)}"] = {"op": "select", "input": list(nodes)[-1], **step}
    return Plan.parse({"root": list(nodes)[-1], "nodes": nodes})


def typed(plan: Plan) -> TypedPlan:
    return infer(plan, SHAPES)


# Validation


def test_hints_are_read_and_written_with_units() -> None:
    plan = chain({"where": "x > 1", "hints": HINTS})
    hints = plan.nodes["s1"].hints
    assert hints is not None
    assert (hints.selectivity, hints.cost, hints.size) == (0.2, 20_000, 16)
    dumped = plan.model_dump(mode="json", exclude_none=True)
    assert dumped["nodes"]["s1"]["hints"] == HINTS
    assert Plan.parse(dumped) == plan
    assert typed(plan).nodes["s1"].hints == hints


@pytest.mark.parametrize(
    ("text", "nanoseconds", "written"),
    [
        ("250ns", 250, "250ns"),
        ("0.25us", 250, "250ns"),
        ("1.5ms", 1_500_000, "1500us"),
        ("2s", 2 * 10**9, "2s"),
    ],
)
def test_costs_are_quantities(text: str, nanoseconds: int, written: str) -> None:
    assert parse_cost(text) == nanoseconds
    assert format_cost(nanoseconds) == written


@pytest.mark.parametrize(
    ("hints", "pointer", "detail"),
    [
        ({"selectivity": 0}, "selectivity", "must be a finite number above zero, got 0"),
        ({"selectivity": -1}, "selectivity", "must be a finite number above zero, got -1"),
        ({"selectivity": "half"}, "selectivity", "must be a number, got a value of type str"),
        ({"cost": 20}, "cost", "cost 20 is a bare number: write text with a unit, such as 250ns"),
        ({"cost": "0ns"}, "cost", "cost must be above zero"),
        ({"cost": "1h"}, "cost", "has the unknown unit 'h': use one of ns, us, ms, s"),
        ({"size": "0B"}, "size", "size must be above zero"),
        ({"price": 1}, "price", "'price' is not known here; leave it out"),
    ],
)
def test_the_error_for_a_wrong_hint_has_a_pointer(hints: dict[str, Any], pointer: str, detail: str) -> None:
    with pytest.raises(InvalidPlan) as caught:
        chain({"where": "x > 1", "hints": hints})
    (item,) = caught.value.items
    assert item.pointer == f"nodes/s1/hints/{pointer}"
    assert detail in item.detail


def test_a_source_has_no_selectivity_and_a_table_no_hints() -> None:
    with pytest.raises(InvalidPlan) as caught:
        Plan.parse(
            {"root": "in", "nodes": {"in": {"op": "source", "stream": "s", "hints": {"selectivity": 1}}}}
        )
    assert caught.value.items[0].pointer == "nodes/in/hints"
    assert "a source hands on every row" in caught.value.items[0].detail
    with pytest.raises(InvalidPlan) as caught:
        Plan.parse({"root": "t", "nodes": {"t": {"op": "table", "table": "rooms", "hints": {}}}})
    assert caught.value.items[0].code == "unknown_key"


def test_every_operator_accepts_hints() -> None:
    second = {"kind": "tumbling", "size": "1s"}
    nodes: dict[str, Any] = {
        "in": {"op": "source", "stream": "readings", "hints": {"size": "24B"}},
        "parts": {"op": "split", "input": "in", "outputs": {"low": "x < 5"}},
        "p": {"op": "project", "input": "parts.low", "compute": {"x": "x", "y": "y"}},
        "u": {"op": "union", "inputs": ["p", "parts.else"]},
        "j": {"op": "join", "left": "u", "right": "in", "window": second, "on": [["x", "x"]],
              "compute": {"x": "l.x", "y": "r.y"}},
        "o": {"op": "project", "input": "j", "compute": {"x": "x", "y": "y"}},
        "e": {"op": "except", "left": "o", "right": "in", "window": second},
        "a": {"op": "aggregate", "input": "e", "window": second, "compute": {"n": "count(*)"}},
    }  # fmt: skip
    hinted = {name: {**node, "hints": {"cost": "1us"}} for name, node in nodes.items()}
    plan = infer(Plan.parse({"root": "a", "nodes": hinted}), SHAPES)
    assert all(node.hints is not None and node.hints.cost == 1000 for node in plan.nodes.values())


def test_the_builder_declares_hints() -> None:
    flow = build_stream("readings").where("x > 1").hint(selectivity=0.2, cost="20us").hint(size="16B")
    assert flow.build() == Plan.parse(
        {
            "root": "select",
            "nodes": {
                "readings": {"op": "source", "stream": "readings"},
                "select": {"op": "select", "input": "readings", "where": "x > 1", "hints": HINTS},
            },
        }
    )
    split = build_stream("readings").split(low="x < 5").hint(cost="1us")
    node = split["low"].build().nodes["split"]
    assert isinstance(node, SplitNode)
    assert node.hints is not None
    assert node.hints.cost == 1000


# Not part of a plan's identity


def test_plans_that_differ_only_in_hints_are_equal() -> None:
    plain, hinted = chain({"where": "x > 1"}), chain({"where": "x > 1", "hints": HINTS})
    assert wording(plain) == wording(hinted)
    assert canonical(typed(plain)) == canonical(typed(hinted))
    assert typed(plain) == typed(hinted)
    assert kept_nodes(typed(plain), typed(hinted), one_time=False) == {"in", "s1"}
    options = RunOptions()
    assert [c.keys for c in prefixes(typed(plain), options)] == [
        c.keys for c in prefixes(typed(hinted), options)
    ]


def test_queries_that_differ_only_in_hints_share_and_give_the_same_answers(
    stream: MakeStream, clock: ManualClock
) -> None:
    bench = Bench(readings_of(stream), clock)
    nodes: dict[str, Any] = {
        "in": {"op": "source", "stream": "readings"},
        "hot": {"op": "select", "input": "in", "where": "x >= 10"},
        "out": {"op": "project", "input": "hot", "compute": {"y": "x + 1"}},
    }
    hinted = {**nodes, "hot": {**nodes["hot"], "hints": {"selectivity": 3, "cost": "1ms"}}}
    runs = [bench.start("plain", nodes), bench.start("hinted", hinted)]
    bench.feed(*range(5))
    assert shares(*runs)
    bench.feed(*range(5, 30))
    assert runs[0].rows() == runs[1].rows()
    assert len(runs[0].rows()) == 20


# Use


def test_an_operator_is_rated_by_its_hints_until_enough_is_measured(
    stream: MakeStream, clock: ManualClock
) -> None:
    bench = Bench(readings_of(stream), clock, policy="segment", train=PUBLISH_EVERY)
    nodes = {
        "in": {"op": "source", "stream": "readings", "hints": {"size": "100B"}},
        "out": {"op": "select", "input": "in", "where": "x >= 10", "hints": HINTS},
    }
    task = bench.start("q", nodes).query.tasks["out"]
    expected = Statistics(cost_per_tuple=20_000, selectivity=0.2, tuple_size=16, input_size=100)
    assert task.statistics == expected
    # 100 - .2 x 16 bytes for 20 us and a fifth of the output's 100 ns
    (unit,) = task.query.units.segments()
    assert unit.release == pytest.approx((100 - 0.2 * 16) / (20_000 + 0.2 * 100))
    bench.feed(*range(PUBLISH_EVERY - 1))
    assert task.statistics == expected
    bench.feed(PUBLISH_EVERY)
    assert task.statistics.tuples == PUBLISH_EVERY
    assert task.statistics.selectivity == pytest.approx(190 / 200)
    assert task.statistics.input_size != 100


def cheapest(plan: Plan, metrics: PlanMetrics | None = None) -> Alternate:
    return alternates(plan, SHAPES, metrics or PlanMetrics(RATE))[0]


def order(plan: Plan) -> list[str]:
    """Return the selects bottom-up."""
    return [name for name in typed(plan).nodes if name != "in"]


def test_the_cost_model_uses_hints_where_nothing_was_measured() -> None:
    plan = chain({"where": "x > 1"}, {"where": "y > 1", "hints": {"selectivity": 0.01}})
    found = cheapest(plan)
    assert order(found.plan) == ["s2", "s1"]
    hints = found.plan.nodes["s2"].hints
    assert hints is not None, "and they stay with the node"
    assert hints.selectivity == 0.01
    costly = chain({"where": "x > 1", "hints": {"cost": "50us"}}, {"where": "y > 1"})
    assert order(cheapest(costly).plan) == ["s2", "s1"]
    # 1000 rows to s2, and of the third that passes each costs 50 us
    assert cheapest(costly).cost == pytest.approx(1000 / 3 * 50_000, rel=0.02)


def test_measured_metrics_take_precedence_over_hints() -> None:
    plan = chain({"where": "x > 1"}, {"where": "y > 1", "hints": {"selectivity": 0.01}})
    measured = {
        "s1": Statistics(cost_per_tuple=100.0, selectivity=0.1, tuples=1000),
        "s2": Statistics(cost_per_tuple=100.0, selectivity=0.9, tuples=1000),
    }
    assert order(cheapest(plan, PlanMetrics(RATE, measured)).plan) == ["s1", "s2"]


@pytest.mark.parametrize(
    "below",
    [
        {"op": "project", "input": "in", "compute": {"x": "x", "z": "y * 2"}},
        {"op": "union", "inputs": ["in", "in"]},
    ],
)
def test_a_moved_select_keeps_its_hints_except_the_size(below: dict[str, Any]) -> None:
    nodes = {
        "in": {"op": "source", "stream": "readings"},
        "b": below,
        "s": {"op": "select", "input": "b", "where": "x > 1", "hints": HINTS},
    }
    plan = Plan.parse({"root": "s", "nodes": nodes})
    moved = [one.plan for one in alternates(plan, SHAPES) if one.plan.root == "b"]
    assert moved
    for other in moved:
        hints = other.nodes["s"].hints
        assert hints is not None
        assert (hints.selectivity, hints.cost, hints.size) == (0.2, 20_000, None)


def test_admission_uses_hints_and_does_not_learn_from_them() -> None:
    experience = CostHistory()
    arrivals = {"readings": Arrivals(1000.0, 10.0)}
    plain = chain({"where": "x > 1"}, {"where": "y > 1"})
    hinted = chain({"where": "x > 1", "hints": {"selectivity": 0.9, "cost": "100us"}}, {"where": "y > 1"})
    before = experience.assess(typed(plain), arrivals)
    assert before.work < 0.01
    assert experience.assess(typed(hinted), arrivals).work == pytest.approx(0.1, rel=0.05)
    assert experience.assess(typed(plain), arrivals) == before
    experience.learn(typed(hinted), (), RATE)
    assert experience.assess(typed(plain), arrivals) == before


def test_admission_prefers_metrics_of_an_equal_condition_to_hints() -> None:
    experience = CostHistory()
    arrivals = {"readings": Arrivals(1000.0, 10.0)}
    measured = OperatorMetrics("s1", "select", "operational", "suspend", 0, 0, 0, 1000.0, 0.5, 5000, 2500, {})
    experience.learn(typed(chain({"where": "x > 1"})), (measured,), RATE)
    hinted = chain({"where": "x > 1", "hints": {"selectivity": 0.9, "cost": "100us"}})
    assert experience.assess(typed(hinted), arrivals) == experience.assess(
        typed(chain({"where": "x > 1"})), arrivals
    )
