"""The cost model: numbers by hand, and metrics transferred to plans that never ran."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.plans.rewriting_steps import (
    DOORS,
    IN,
    METERS,
    SECOND,
    STREAMS,
    Nodes,
    plan_of,
    project,
    select,
)

from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import InputRef
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_server.planning.rewriting import PlanMetrics, alternates
from mavstream_server.planning.rewriting.costing.estimates import (
    BASE_COSTS,
    COLUMN_COST,
    PAIR_COST,
    row_bytes,
)
from mavstream_server.planning.rewriting.costing.model import QUEUED, CostModel
from mavstream_server.scheduling.statistics import Statistics

RATES = {"readings": 1000.0, "doors": 100.0, "meters": 10.0}


def measured(selectivity: float, cost: float = 100.0) -> Statistics:
    return Statistics(10_000.0, cost, selectivity, 64.0, 1000)


def typed(nodes: Nodes, root: str) -> TypedPlan:
    return infer(plan_of(nodes, root), STREAMS)


def two(first: str, second: str) -> Nodes:
    return {**IN, "a": select("in", first), "b": select("a", second)}


HOME, HOT = "home = 1", "temperature > 30"


def test_the_cost_of_the_running_plan_is_the_measured_cost() -> None:
    metrics = PlanMetrics(RATES, {"a": measured(0.5, 200.0), "b": measured(0.1, 400.0)})
    plan = typed(two(HOME, HOT), "b")
    found = CostModel(plan, metrics).assess(plan)
    assert found.works == pytest.approx({"a": 1000 * 200.0, "b": 500 * 400.0})
    assert found.work == pytest.approx(400_000.0)
    assert found.rates[InputRef("b", None)] == pytest.approx(50.0)


def test_metrics_of_a_predicate_apply_wherever_it_is_moved() -> None:
    metrics = PlanMetrics(RATES, {"a": measured(0.5, 200.0), "b": measured(0.1, 400.0)})
    model = CostModel(typed(two(HOME, HOT), "b"), metrics)
    # The other way round: 1000 rows at 400 ns, of which a tenth is left, at 200 ns.
    assert model.assess(typed(two(HOT, HOME), "b")).work == pytest.approx(1000 * 400.0 + 100 * 200.0)
    renamed = {**IN, "p": project("in", h="home", t="temperature"), "s": select("p", "t > 30")}
    assert model.assess(typed(renamed, "s")).works["s"] == pytest.approx(1000 * 400.0)


def test_the_rank_is_selectivity_minus_one_over_cost() -> None:
    metrics = PlanMetrics(RATES, {"a": measured(0.9, 100.0), "b": measured(0.5, 1000.0)})
    plan = typed(two(HOME, HOT), "b")
    rank = CostModel(plan, metrics).ranks(plan)
    assert (rank("a"), rank("b")) == (pytest.approx(-0.001), pytest.approx(-0.0005))


def test_a_cheap_selective_select_comes_first() -> None:
    metrics = PlanMetrics(RATES, {"a": measured(0.9, 1000.0), "b": measured(0.1, 100.0)})
    best = alternates(plan_of(two(HOME, HOT), "b"), STREAMS, metrics)[0]
    assert [step.rule for step in best.steps] == ["order selects"]
    assert best.cost == pytest.approx(1000 * 100.0 + 100 * 1000.0)


def test_the_order_of_selects_follows_changed_selectivities() -> None:
    plan = plan_of(two(HOME, HOT), "b")
    before = PlanMetrics(RATES, {"a": measured(0.1), "b": measured(0.9)})
    after = PlanMetrics(RATES, {"a": measured(0.9), "b": measured(0.1)})
    assert alternates(plan, STREAMS, before)[0].plan == plan
    swapped = alternates(plan, STREAMS, after)[0]
    assert swapped.plan.root == "a"
    # And back, with new metrics under the same names.
    assert alternates(swapped.plan, STREAMS, before)[0].plan.root == "b"


def test_metrics_of_a_conjunction_are_divided_among_its_parts() -> None:
    metrics = PlanMetrics(RATES, {"s": measured(0.01, 300.0)})
    model = CostModel(typed({**IN, "s": select("in", f"{HOME} AND {HOT}")}, "s"), metrics)
    apart = model.assess(typed(two(HOME, HOT), "b"))
    assert apart.rates[InputRef("b", None)] == pytest.approx(1000 * 0.01)
    # By the estimates (0.1 and 1/3) the first part is more selective than the second.
    assert 10 < apart.rates[InputRef("a", None)] < 1000 * 0.1


def test_copies_below_a_union_use_the_metrics_of_the_original() -> None:
    nodes = {
        **IN,
        "in2": {"op": "source", "stream": "readings"},
        "p": project("in2", **{name: name for name in STREAMS["readings"].schema.names}),
        "u": {"op": "union", "inputs": ["in", "p"]},
        "s": select("u", HOT),
    }
    metrics = PlanMetrics(RATES, {"s": measured(0.25, 80.0)})
    found = alternates(plan_of(nodes, "s"), STREAMS, metrics)
    below = next(a for a in found if [step.rule for step in a.steps] == ["select below union"])
    rates = CostModel(typed(nodes, "s"), metrics).assess(infer(below.plan, STREAMS)).rates
    assert rates[InputRef("s", None)] == rates[InputRef("s_2", None)] == pytest.approx(250.0)


def joined(**changes: Any) -> Nodes:
    node = {"op": "join", "left": "in", "right": "doors", "on": [["home", "home"]], "window": SECOND}
    return {**IN, **DOORS, "j": {**node, "compute": {"home": "l.home", "open": "r.open"}, **changes}}


def test_a_join_costs_its_rows_and_its_pairs() -> None:
    plan = typed(joined(), "j")
    found = CostModel(plan, PlanMetrics(RATES)).assess(plan)
    pairs = 1000 * 100 * 1.0 * 0.1  # all pairs of a second, of which a tenth has equal keys
    assert found.rates[InputRef("j", None)] == pytest.approx(pairs)
    assert found.work == pytest.approx(1100 * BASE_COSTS["join"] + pairs * (PAIR_COST + 2 * COLUMN_COST))
    left = row_bytes([STREAMS["readings"].schema.fields[1]])
    right = row_bytes(STREAMS["doors"].schema.fields[1:])
    assert found.memory == pytest.approx((1000 * left + 100 * right) * (1.0 + QUEUED))


def test_pairs_of_a_measured_join_decrease_with_its_inputs() -> None:
    nodes = {**joined(), "s": select("j", "open")}
    metrics = PlanMetrics(RATES, {"j": measured(2.0, 500.0), "s": measured(0.2, 50.0)})
    model = CostModel(typed(nodes, "s"), metrics)
    below = {**joined(right="s"), "s": select("doors", "open")}
    found = model.assess(typed(below, "j"))
    assert found.rates[InputRef("s", None)] == pytest.approx(20.0)
    assert found.rates[InputRef("j", None)] == pytest.approx(2.0 * 1100 * 0.2)
    assert found.work < model.assess(typed(nodes, "s")).work


def test_the_rare_input_is_joined_first() -> None:
    lower = {"op": "join", "left": "in", "right": "doors", "on": [["home", "home"]], "window": SECOND}
    upper = {"op": "join", "left": "i", "right": "meters", "on": [["home", "home"]], "window": SECOND}
    nodes = {
        **IN,
        **DOORS,
        **METERS,
        "i": {**lower, "compute": {"home": "l.home", "open": "r.open"}},
        "o": {**upper, "compute": {"home": "l.home", "open": "l.open", "power": "r.power"}},
    }
    best = alternates(plan_of(nodes, "o"), STREAMS, PlanMetrics(RATES))[0]
    assert [str(step) for step in best.steps] == ["join order at o: joins doors and meters first, then in"]
    frequent = PlanMetrics({**RATES, "meters": 100_000.0})
    assert alternates(plan_of(nodes, "o"), STREAMS, frequent)[0].steps == ()


def test_metrics_without_measurements_are_ignored() -> None:
    plan = typed(two(HOME, HOT), "b")
    declared = PlanMetrics(RATES, {"a": Statistics(selectivity=0.0), "b": Statistics()})
    assert CostModel(plan, declared).assess(plan) == CostModel(plan, PlanMetrics(RATES)).assess(plan)
    silent = CostModel(plan, PlanMetrics({"readings": 0.0}, {"a": measured(0.5)}))
    assert silent.assess(plan).work == 0.0


def test_memory_decreases_with_the_rows_that_are_held() -> None:
    nodes = joined(compute={"home": "l.home", "t": "l.temperature", "room": "l.room", "open": "r.open"})
    nodes["p"] = {
        "op": "aggregate",
        "input": "j",
        "by": ["home"],
        "window": SECOND,
        "compute": {"n": "count(*)"},
    }
    found = alternates(plan_of(nodes, "p"), STREAMS, PlanMetrics(RATES))
    original = next(a for a in found if not a.steps)
    assert found[0].steps[0].rule == "drop columns"
    assert found[0].memory < original.memory
