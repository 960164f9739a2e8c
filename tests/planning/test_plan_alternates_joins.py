"""Rewriting rules for joins: the plans they produce, and when they do not apply."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.plans.rewriting_steps import (
    DOORS,
    IN,
    METERS,
    SECOND,
    Nodes,
    project,
    select,
    step_of,
    steps_of,
)

from mavstream_protocol.queries import OnError
from mavstream_server.planning.rewriting.rules import (
    condition_below_join,
    join_order,
    merge_projects,
    select_below_join,
)

HOMES = {"homes": {"op": "table", "table": "homes"}}
COMPUTE = {"home": "l.home", "t": "l.temperature", "open": "r.open", "f": "sqrt(l.humidity)"}


def join(**changes: Any) -> Nodes:
    node = {"op": "join", "left": "in", "right": "doors", "on": [["home", "home"]], "within": "1s"}
    node |= {"compute": COMPUTE, **changes}
    if "window" in node:
        del node["within"]
    return {**IN, **DOORS, "j": node}


def table_join(**changes: Any) -> Nodes:
    node = {"op": "join", "left": "in", "right": "homes", "on": [["home", "home"]]}
    node |= {"compute": {"t": "l.temperature", "owner": "r.owner"}, **changes}
    return {**IN, **HOMES, "j": node}


@pytest.mark.parametrize("near", [{"within": "1s"}, {"window": SECOND}, {"within": "1s", "order": "time"}])
def test_parts_of_a_select_are_moved_to_the_side_that_has_their_columns(near: dict[str, Any]) -> None:
    nodes = join(**near)
    asked = "t > 30 AND open AND (open OR t < 0) AND (f IS NULL OR t > 1) AND home <> 3"
    root, made = step_of(select_below_join.RULE, {**nodes, "s": select("j", asked)}, "s")
    assert root == "s"
    assert made["s_2"] == select("in", "(temperature > 30) AND (home <> 3)")
    assert made["s_3"] == select("doors", "open")
    assert made["j"]["where"] == "r.open OR (l.temperature < 0)"
    assert (made["j"]["left"], made["j"]["right"]) == ("s_2", "s_3")
    assert made["s"] == select("j", "(f IS NULL) OR (t > 1)")  # a condition that can fail stays where it was


def test_a_select_may_be_moved_as_a_whole() -> None:
    root, made = step_of(select_below_join.RULE, {**join(), "s": select("j", "t > 30")}, "s")
    assert root == "j"
    assert made["s"] == select("in", "temperature > 30")
    assert made["j"]["left"] == "s"


def test_conditions_on_window_bounds_stay_above() -> None:
    nodes = {**join(window=SECOND), "s": select("j", "window_start IS NOT NULL AND open")}
    _, made = step_of(select_below_join.RULE, nodes, "s")
    assert made["s"] == select("j", "window_start IS NOT NULL")
    nodes["s"] = select("j", "window_start IS NOT NULL")
    assert not steps_of(select_below_join.RULE, nodes, "s")


def test_no_select_is_moved_below_a_window_by_rows() -> None:
    nodes = join(window={"kind": "tumbling", "size": 10}, where="l.temperature > 0")
    assert not steps_of(condition_below_join.RULE, nodes, "j")
    assert not steps_of(select_below_join.RULE, {**nodes, "s": select("j", "t > 30")}, "s")


def test_rewriting_does_not_change_the_first_window_of_a_one_time_query() -> None:
    nodes = {**join(window=SECOND), "s": select("j", "t > 30")}
    assert not steps_of(select_below_join.RULE, nodes, "s", one_time=True)
    pairs = join(window=SECOND, where="l.temperature > 0")
    assert steps_of(condition_below_join.RULE, pairs, "j", one_time=True)


def test_a_join_with_another_reader_is_not_rewritten() -> None:
    nodes = {**join(), "s": select("j", "t > 30"), "u": {"op": "union", "inputs": ["s", "j"]}}
    assert not steps_of(select_below_join.RULE, nodes, "u")


def test_a_condition_that_can_fail_stays_if_failures_end_the_query() -> None:
    nodes = {**join(), "s": select("j", "t > 30")}
    assert steps_of(select_below_join.RULE, nodes, "s", on_error=OnError.SKIP)
    assert not steps_of(select_below_join.RULE, nodes, "s", on_error=OnError.FAIL)
    nodes = join(where="ln(l.temperature) > 1.0")
    assert steps_of(condition_below_join.RULE, nodes, "j")
    assert not steps_of(condition_below_join.RULE, nodes, "j", on_error=OnError.FAIL)


def test_conditions_on_one_side_are_moved_below_the_join() -> None:
    where = "l.temperature > 30 AND r.open AND l.ts < r.ts"
    root, made = step_of(condition_below_join.RULE, join(where=where), "j")
    assert root == "j"
    assert made["j_input"] == select("in", "temperature > 30")
    assert made["j_input_2"] == select("doors", "open")
    assert (made["j"]["left"], made["j"]["right"]) == ("j_input", "j_input_2")
    assert made["j"]["where"] == "l.ts < r.ts"


def test_no_select_is_moved_to_a_table() -> None:
    nodes = {**table_join(), "s": select("j", "t > 30 AND owner <> 'me'")}
    root, made = step_of(select_below_join.RULE, nodes, "s")
    assert root == "j"
    assert made["s"] == select("in", "temperature > 30")
    assert made["j"]["where"] == "r.owner <> 'me'"
    nodes = table_join(where="l.temperature > 30 AND r.owner <> 'me'")
    _, made = step_of(condition_below_join.RULE, nodes, "j")
    assert made["j"]["where"] == "r.owner <> 'me'"
    assert made["j_input"] == select("in", "temperature > 30")


def test_no_select_is_moved_to_the_nullable_side_of_a_left_join() -> None:
    nodes = {**table_join(how="left"), "s": select("j", "t > 30 AND owner IS NULL")}
    root, made = step_of(select_below_join.RULE, nodes, "s")
    assert root == "s"
    assert made["s_2"] == select("in", "temperature > 30")
    assert made["s"] == select("j", "owner IS NULL")
    assert "where" not in made["j"]
    nodes = table_join(how="left", where="l.temperature > 30 AND r.owner <> 'me'")
    assert not steps_of(condition_below_join.RULE, nodes, "j")


def test_a_project_is_merged_into_a_join() -> None:
    nodes = {**join(), "p": project("j", a="f", b="coalesce(t, 0) > 1")}
    root, made = step_of(merge_projects.RULE, nodes, "p")
    assert root == "j"
    assert made["j"]["compute"] == {"a": "sqrt(l.humidity)", "b": "(coalesce(l.temperature, 0)) > 1"}
    forgets = {**join(), "p": project("j", t="t")}
    assert steps_of(merge_projects.RULE, forgets, "p")
    assert not steps_of(merge_projects.RULE, forgets, "p", on_error=OnError.SKIP)  # `f` skips rows
    windowed = {**join(window=SECOND), "p": project("j", t="t", at="window_end")}
    assert not steps_of(merge_projects.RULE, windowed, "p")


# Join order


def three(lower: Nodes | None = None, upper: Nodes | None = None) -> Nodes:
    """Join readings with doors, and those with meters."""
    inner = {"op": "join", "left": "in", "right": "doors", "on": [["home", "home"]], "window": SECOND}
    inner["compute"] = {"home": "l.home", "t": "l.temperature", "open": "r.open"}
    outer = {"op": "join", "left": "i", "right": "meters", "on": [["home", "home"]], "window": SECOND}
    outer |= {
        "where": "r.power > 10.0 AND l.t > 0",
        "compute": {"t": "l.t", "p": "r.power", "at": "l.window_start"},
    }
    return {**IN, **DOORS, **METERS, "i": {**inner, **(lower or {})}, "o": {**outer, **(upper or {})}}


def test_three_inputs_of_one_window_are_joined_in_another_order() -> None:
    first, second = steps_of(join_order.RULE, three(), "o")
    nodes = first.model_dump(mode="json", exclude_defaults=True)["nodes"]
    # Readings with meters first: both have the home that the upper join compares.
    assert nodes["i_2"] == {
        "op": "join",
        "left": "in",
        "right": "meters",
        "on": [["home", "home"]],
        "window": SECOND,
        "where": "(r.power > 10.0) AND (l.temperature > 0)",
        "compute": {"temperature": 'l."temperature"', "power": 'r."power"', "home": 'l."home"'},
    }
    assert nodes["o"] == {
        "op": "join",
        "left": "doors",
        "right": "i_2",
        "on": [["home", "home"]],
        "window": SECOND,
        "compute": {"t": "r.temperature", "p": "r.power", "at": "r.window_start"},
    }
    # Doors with meters first: homes that equal the same home are equal.
    nodes = second.model_dump(mode="json", exclude_defaults=True)["nodes"]
    assert (nodes["i_2"]["left"], nodes["i_2"]["right"], nodes["i_2"]["on"]) == (
        "doors",
        "meters",
        [["home", "home"]],
    )
    assert nodes["i_2"]["where"] == "r.power > 10.0"
    assert (nodes["o"]["left"], nodes["o"]["where"]) == ("in", "l.temperature > 0")


@pytest.mark.parametrize(
    "changes",
    [
        {"lower": {"window": {"kind": "tumbling", "size": "2s"}}},
        {"lower": {"window": {"kind": "hopping", "size": "2s", "hop": "1s"}},
         "upper": {"window": {"kind": "hopping", "size": "2s", "hop": "1s"}}},
        {"lower": {"window": {"kind": "tumbling", "size": 10}, "order": "time"},
         "upper": {"window": {"kind": "tumbling", "size": 10}, "compute": {"t": "l.t"}}},
        {"lower": {"order": "time"}},
        {"lower": {"compute": {"home": "l.home", "t": "l.temperature + 1"}}},
        {"lower": {"compute": {"home": "coalesce(l.home, 1)", "t": "l.temperature"}}},
        {"lower": {"on": []}, "upper": {"on": []}},
    ],
    ids=["other window", "overlap", "rows", "order", "can fail", "computed key", "no keys"],
)  # fmt: skip
def test_joins_are_reordered_only_within_one_window(changes: dict[str, Nodes]) -> None:
    assert not steps_of(join_order.RULE, three(**changes), "o")


def test_interval_joins_are_not_reordered() -> None:
    nodes = three()
    for name in ("i", "o"):
        del nodes[name]["window"]
        nodes[name]["within"] = "1s"
    nodes["o"]["compute"] = {"t": "l.t"}
    assert not steps_of(join_order.RULE, nodes, "o")


def test_a_lower_join_with_another_reader_is_not_reordered() -> None:
    nodes = three(upper={"compute": {"home": "l.home", "t": "l.t", "open": "l.open"}})
    nodes["u"] = {"op": "union", "inputs": ["i", "o"]}
    assert not steps_of(join_order.RULE, nodes, "u")
    assert not steps_of(join_order.RULE, three(), "o", one_time=True)
