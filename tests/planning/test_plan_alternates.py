"""Rewriting rules for selects and projects: the plans they produce, and when they do not apply."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.plans.rewriting_steps import (
    DOORS,
    IN,
    SECOND,
    STREAMS,
    plan_of,
    project,
    select,
    step_of,
    steps_of,
)

from mavstream_protocol.errors import InvalidPlan
from mavstream_protocol.expressions.functions import FUNCTIONS, OPERATORS, Nulls
from mavstream_protocol.expressions.parser import parse_scalar
from mavstream_protocol.plans.inference import infer
from mavstream_protocol.queries import OnError
from mavstream_server.planning.rewriting import PlanMetrics, alternates
from mavstream_server.planning.rewriting.expressions import NEVER_FAIL, can_fail
from mavstream_server.planning.rewriting.rules import (
    drop_columns,
    merge_projects,
    merge_selects,
    order_selects,
    select_below_node,
    select_below_split,
    select_below_union,
    split_select,
)
from mavstream_server.planning.rewriting.rules.catalogue import RULES
from mavstream_server.planning.rewriting.texts import text_of
from mavstream_server.scheduling.statistics import Statistics

COLUMNS = {field.name: field for field in STREAMS["readings"].schema}
FAIL = {"on_error": OnError.FAIL}


def measured(selectivity: float, cost: float = 100.0) -> Statistics:
    return Statistics(10_000.0, cost, selectivity, 64.0, 1000)


# Selects among themselves


def test_a_conjunction_is_split() -> None:
    nodes = {**IN, "s": select("in", "temperature > 30 AND (humidity < 0.5 AND room = 'hall')")}
    root, made = step_of(split_select.RULE, nodes, "s")
    assert root == "s"
    assert made == {
        **IN,
        "s_2": select("in", "temperature > 30"),
        "s_3": select("s_2", "humidity < 0.5"),
        "s": select("s_3", "room = 'hall'"),
    }


def test_a_condition_that_can_fail_is_not_split_if_failures_end_the_query() -> None:
    nodes = {**IN, "s": select("in", "temperature > 0 AND sqrt(temperature) > 2.0")}
    assert steps_of(split_select.RULE, nodes, "s", on_error=OnError.SKIP)
    assert not steps_of(split_select.RULE, nodes, "s", **FAIL)
    assert not steps_of(split_select.RULE, {**IN, "s": select("in", "home = 1 OR home = 2")}, "s")


def test_selects_are_ordered_by_rank() -> None:
    nodes = {
        **IN,
        "a": select("in", "home > 0"),
        "b": select("a", "temperature > 30"),
        "c": select("b", "humidity < 0.5"),
    }
    # Ranks: a (0.9 - 1) / 100 = -0.001, b (0.5 - 1) / 1000 = -0.0005, c (0.2 - 1) / 200 = -0.004.
    metrics = PlanMetrics(
        operators={"a": measured(0.9, 100.0), "b": measured(0.5, 1000.0), "c": measured(0.2, 200.0)}
    )
    root, made = step_of(order_selects.RULE, nodes, "c", metrics=metrics)
    assert root == "b"
    assert made == {
        **IN,
        "c": select("in", "humidity < 0.5"),
        "a": select("c", "home > 0"),
        "b": select("a", "temperature > 30"),
    }


def test_a_select_with_another_reader_is_not_reordered() -> None:
    nodes = {
        **IN,
        "a": select("in", "home > 0"),
        "b": select("a", "temperature > 30"),
        "u": {"op": "union", "inputs": ["a", "b"]},
    }
    metrics = PlanMetrics(operators={"a": measured(0.9), "b": measured(0.1)})
    for rule in (order_selects.RULE, merge_selects.RULE):
        assert not steps_of(rule, nodes, "u", metrics=metrics)


def test_selects_are_merged() -> None:
    nodes = {**IN, "a": select("in", "home > 0"), "b": select("a", "humidity < 0.5 AND temperature > 30")}
    root, made = step_of(merge_selects.RULE, nodes, "b")
    assert (root, made) == (
        "b",
        {**IN, "b": select("in", "(home > 0) AND (humidity < 0.5) AND (temperature > 30)")},
    )
    fails = {**IN, "a": select("in", "home > 0"), "b": select("a", "ln(home) > 1.0")}
    assert not steps_of(merge_selects.RULE, fails, "b", **FAIL)


# Selects below other operators


def test_a_select_is_moved_below_a_project() -> None:
    nodes = {
        **IN,
        "p": project("in", where_="coalesce(room, '-')", t="temperature"),
        "s": select("p", "where_ <> 'hall' AND t > 30"),
    }
    root, made = step_of(select_below_node.RULE, nodes, "s")
    assert root == "p"
    assert made == {
        **IN,
        "s": select("in", "((coalesce(room, '-')) <> 'hall') AND (temperature > 30)"),
        "p": project("s", where_="coalesce(room, '-')", t="temperature"),
    }


def test_a_column_that_can_fail_keeps_a_select_above() -> None:
    # A failed column is null, and passes; the same expression inside the predicate fails as a whole.
    nodes = {**IN, "p": project("in", f="sqrt(humidity)", t="temperature"), "s": select("p", "f IS NULL")}
    assert not steps_of(select_below_node.RULE, nodes, "s")
    nodes["s"] = select("p", "t > 30")
    assert steps_of(select_below_node.RULE, nodes, "s")
    assert not steps_of(select_below_node.RULE, nodes, "s", **FAIL)


@pytest.mark.parametrize("order", [{}, {"order": "time"}])
def test_a_select_is_moved_below_a_union(order: dict[str, Any]) -> None:
    union = {"op": "union", "inputs": ["in", "warm", "in"], **order}
    nodes = {**IN, "warm": select("in", "temperature > 20"), "u": union, "s": select("u", "home = 1")}
    root, made = step_of(select_below_union.RULE, nodes, "s")
    assert root == "u"
    assert made == {
        **IN,
        "warm": select("in", "temperature > 20"),
        "s": select("in", "home = 1"),
        "s_2": select("warm", "home = 1"),
        "u": {"op": "union", "inputs": ["s", "s_2", "s"], **order},
    }


def test_a_select_below_an_ordered_union_sees_late_rows() -> None:
    nodes = {
        **IN,
        "u": {"op": "union", "inputs": ["in", "in"], "order": "time"},
        "s": select("u", "sqrt(temperature) > 2.0"),
    }
    assert steps_of(select_below_union.RULE, nodes, "s")
    assert not steps_of(select_below_union.RULE, nodes, "s", **FAIL)


def test_a_condition_on_every_output_is_moved_below_a_split() -> None:
    split = {"op": "split", "input": "in", "outputs": {"hot": "temperature > 30", "cold": "temperature < 0"}}
    nodes = {
        **IN,
        "sp": split,
        "a": select("sp.hot", "home = 1"),
        "b": select("sp.else", "home  =  1"),
        "u": {"op": "union", "inputs": ["a", "b"]},
    }
    root, made = step_of(select_below_split.RULE, nodes, "u")
    assert root == "u"
    assert made == {
        **IN,
        "a": select("in", "home = 1"),
        "sp": {**split, "input": "a"},
        "u": {"op": "union", "inputs": ["sp.hot", "sp.else"]},
    }
    nodes["b"] = select("sp.else", "home = 2")
    assert not steps_of(select_below_split.RULE, nodes, "u")


@pytest.mark.parametrize("size", ["1s", 10])
def test_no_select_is_moved_below_an_aggregate_or_an_except(size: Any) -> None:
    window = {"kind": "tumbling", "size": size}
    for windowed in (
        {"op": "aggregate", "input": "in", "by": ["home"], "window": window, "compute": {"n": "count(*)"}},
        {"op": "except", "left": "in", "right": "in2", "window": window},
    ):
        nodes = {**IN, "w": windowed, "s": select("w", "home = 1")}
        if "right" in windowed:
            nodes["in2"] = {"op": "source", "stream": "readings"}
        assert [found.steps for found in alternates(plan_of(nodes, "s"), STREAMS)] == [()]


# Projects and columns


def test_projects_are_merged() -> None:
    nodes = {
        **IN,
        "p": project("in", t="temperature + 1", h="humidity", r="sqrt(humidity)"),
        "q": project("p", a="coalesce(h, 0.5)", b="r", h="h"),
    }
    root, made = step_of(merge_projects.RULE, nodes, "q")
    assert root == "p"
    assert made == {**IN, "p": project("in", a="coalesce(humidity, 0.5)", b="sqrt(humidity)", h="humidity")}


def test_projects_are_not_merged_where_that_changes_or_repeats_a_computation() -> None:
    below = project("in", t="temperature % 7", f="sqrt(humidity)")
    for above in (project("p", a="coalesce(f, 0.5)"), project("p", a="t", b="t > 1")):
        assert not steps_of(merge_projects.RULE, {**IN, "p": below, "q": above}, "q")


def test_unused_columns_are_dropped() -> None:
    join = {"op": "join", "left": "p", "right": "doors", "on": [["h", "home"]], "within": "1s"}
    nodes = {
        **IN,
        **DOORS,
        "p": project("in", h="home", t="temperature", r="room"),
        "j": join,
        "a": {"op": "aggregate", "input": "j", "window": SECOND, "compute": {"n": "count(t)"}},
    }
    root, made = step_of(drop_columns.RULE, nodes, "a")
    assert root == "a"
    assert made["j"]["compute"] == {"t": "l.t"}
    assert made["p"] == nodes["p"]  # in this step the join still read it
    _, again = step_of(drop_columns.RULE, made, "a")
    assert again["p"] == project("in", h="home", t="temperature")


def test_columns_whose_failure_is_observable_are_kept() -> None:
    compute = {
        "n": "count(*)",
        "most": "max(temperature)",
        "all": "sum(temperature)",
        "low": "min(sqrt(humidity))",
    }
    nodes = {
        **IN,
        "a": {"op": "aggregate", "input": "in", "window": SECOND, "compute": compute},
        "p": project("a", n="n"),
    }
    _, made = step_of(drop_columns.RULE, nodes, "p")
    assert set(made["a"]["compute"]) == {"n", "all"}
    assert not steps_of(drop_columns.RULE, nodes, "p", on_error=OnError.SKIP)


def test_a_column_that_skips_rows_is_kept() -> None:
    # `m` is not used, but it makes the engine compute `f`, and rows in which that fails are skipped.
    nodes = {
        **IN,
        "p": project("in", f="sqrt(humidity)"),
        "a": {"op": "aggregate", "input": "p", "window": SECOND, "compute": {"n": "count(*)", "m": "max(f)"}},
        "q": project("a", n="n"),
    }
    assert steps_of(drop_columns.RULE, nodes, "q")
    assert not steps_of(drop_columns.RULE, nodes, "q", on_error=OnError.SKIP)


def test_columns_of_a_unions_inputs_are_kept() -> None:
    nodes = {
        **IN,
        "a": project("in", h="home", t="temperature"),
        "b": project("in", h="home", t="0"),
        "u": {"op": "union", "inputs": ["a", "b"]},
        "p": project("u", h="h"),
    }
    assert not steps_of(drop_columns.RULE, nodes, "p")


# Expressions


def test_every_function_is_listed_as_failing_or_safe() -> None:
    # A new function fails this test until it is listed; one that can fail or is volatile is not listed.
    table = [*OPERATORS.values(), *FUNCTIONS.values()]
    assert {f.name for f in table if f.nulls is not Nulls.FAILS} - {"like"} == NEVER_FAIL - {"try_cast"}
    for text in (
        "temperature % 7 > 1",
        "TRY_CAST(room AS int)",
        "CAST(temperature AS string)",
        "room LIKE 'a%'",
    ):
        assert not can_fail(parse_scalar(text, COLUMNS)), text
    for text in (
        "temperature + 1",
        "temperature % home",
        "CAST(room AS int)",
        "substr(room, 1)",
        "humidity / 2",
    ):
        assert can_fail(parse_scalar(text, COLUMNS)), text


@pytest.mark.parametrize(
    "text",
    [
        "-temperature", "-(5)", "NOT (home = 1 AND room IS NULL)", "room LIKE 'a!%' ESCAPE '!'",
        "CASE WHEN home = 1 THEN 'it''s' WHEN home IN (2, 3) THEN room END",
        "CASE home WHEN 1 THEN 0.5 ELSE 1 END", "round(humidity, 2)", "ts > '2026-01-31 12:00:00.5'",
        "CAST(NULL AS string)", "coalesce(humidity, 1e-7, NULL)",
        "home BETWEEN -1 AND 9223372036854775807", "(home > 1) IS NOT TRUE", "nullif(temperature, humidity)",
    ],
)  # fmt: skip
def test_rewritten_expressions_keep_their_meaning(text: str) -> None:
    meant = parse_scalar(text, COLUMNS)
    written = text_of(meant, COLUMNS)
    assert written is not None
    assert parse_scalar(written, COLUMNS) == meant


# The search


def chain() -> dict[str, Any]:
    where = "temperature > 30 AND humidity < 0.5 AND room <> 'hall'"
    return {
        **IN,
        "p": project("in", room="room", temperature="temperature", humidity="humidity"),
        "s": select("p", where),
    }


def test_the_original_is_among_the_alternates_and_the_cheapest_comes_first() -> None:
    found = alternates(plan_of(chain(), "s"), STREAMS)
    (original,) = [alternate for alternate in found if not alternate.steps]
    assert original.plan == plan_of(chain(), "s")
    assert [a.cost for a in found] == sorted(a.cost for a in found)
    assert found[0].cost < original.cost
    assert str(found[0].steps[0]) == "select below node at s: moved below the project p"


def test_the_search_is_deterministic() -> None:
    one, other = (alternates(plan_of(chain(), "s"), STREAMS, limit=20) for _ in range(2))
    assert one == other
    assert len({str(a.plan) for a in one}) == len(one)


def test_the_search_is_bounded() -> None:
    assert len(alternates(plan_of(chain(), "s"), STREAMS, limit=3)) == 3
    assert len(alternates(plan_of(chain(), "s"), STREAMS, limit=1)) == 1
    with pytest.raises(ValueError, match="at least 1"):
        alternates(plan_of(chain(), "s"), STREAMS, limit=0)


def test_an_invalid_plan_has_no_alternates() -> None:
    with pytest.raises(InvalidPlan):
        alternates(plan_of({**IN, "s": select("in", "nothing > 1")}, "s"), STREAMS)


def test_alternates_give_the_same_columns() -> None:
    schema = infer(plan_of(chain(), "s"), STREAMS).schema
    assert {infer(a.plan, STREAMS).schema for a in alternates(plan_of(chain(), "s"), STREAMS)} == {schema}


def test_every_rule_is_documented() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(rule.about.endswith(".") for rule in RULES)
