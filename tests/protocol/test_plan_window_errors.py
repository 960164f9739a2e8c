"""Invalid windows, groups and joins in plans: each gets its own problem."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.plans.sample_plans import DOORS, IN, SECOND, STREAMS, aggregate, join, problems, select

from mavstream_protocol.errors import InvalidPlan
from mavstream_protocol.plans.inference import check_one_time, infer
from mavstream_protocol.plans.plan import Plan

BAD: dict[str, tuple[dict[str, Any], str, str, str, str]] = {
    "column that is not grouped": (
        aggregate(compute={"x": "temperature"}),
        "a",
        "nodes/a/compute/x",
        "not_grouped",
        "temperature",
    ),
    "zero window": (
        aggregate(window={"kind": "tumbling", "size": "0s"}),
        "a",
        "nodes/a/window/size",
        "invalid_window",
        "0s",
    ),
    "negative window": (
        aggregate(window={"kind": "tumbling", "size": "-5s"}),
        "a",
        "nodes/a/window/size",
        "invalid_window",
        "-5s",
    ),
    "zero rows": (
        aggregate(window={"kind": "tumbling", "size": 0}),
        "a",
        "nodes/a/window/size",
        "invalid_window",
        "greater than 0",
    ),
    "no gap": (
        aggregate(window={"kind": "session", "gap": "0s"}),
        "a",
        "nodes/a/window/gap",
        "invalid_window",
        "0s",
    ),
    "session with a hop": (
        aggregate(window={"kind": "session", "gap": "1s", "hop": "1s"}),
        "a",
        "nodes/a/window/hop",
        "unknown_key",
        "'hop' is not known here",
    ),
    "scaled sessions": (
        aggregate(window={"kind": "session", "gap": "1s"}, scaled=True),
        "a",
        "nodes/a/scaled",
        "not_scalable",
        "a session ends where rows are missing",
    ),
    "join in sessions": (
        join(window={"kind": "session", "gap": "1s"}),
        "j",
        "nodes/j/window",
        "invalid_window",
        "only `aggregate` has session windows",
    ),
    "distinct in sessions": (
        {**IN, "d": {"op": "distinct", "input": "in", "window": {"kind": "session", "gap": "1s"}}},
        "d",
        "nodes/d/window",
        "invalid_window",
        "only `aggregate` has session windows",
    ),
    "endless window": (
        aggregate(window={"kind": "tumbling", "size": "40000d"}),
        "a",
        "nodes/a/window/size",
        "invalid_window",
        "at most 36525d",
    ),
    "too many windows at once": (
        aggregate(window={"kind": "hopping", "size": "1d", "hop": "1us"}),
        "a",
        "nodes/a/window",
        "invalid_window",
        "each row would be in 86400000000 windows",
    ),
    "endless reach": (
        join(within="99999d"),
        "j",
        "nodes/j/within/before",
        "invalid_value",
        "at most 36525d",
    ),
    "hop without hopping": (
        aggregate(window={"kind": "tumbling", "size": "1s", "hop": "1s"}),
        "a",
        "nodes/a/window",
        "invalid_window",
        "a tumbling window has no hop",
    ),
    "hopping without hop": (
        aggregate(window={"kind": "hopping", "size": "1s"}),
        "a",
        "nodes/a/window",
        "invalid_window",
        "needs a `hop`",
    ),
    "until before begin": (
        aggregate(window={"kind": "tumbling", "size": 5, "begin": 10, "until": 10}),
        "a",
        "nodes/a/window",
        "invalid_window",
        "`until` must be after `begin`",
    ),
    "unknown grouping column": (
        aggregate(by=["rooms"]),
        "a",
        "nodes/a/by/0",
        "unknown_field",
        "did you mean 'room'",
    ),
    "grouping twice": (aggregate(by=["room", "room"]), "a", "nodes/a/by/1", "duplicate_column", "twice"),
    "computed like grouped": (
        aggregate(by=["room"], compute={"room": "count(*)"}),
        "a",
        "nodes/a/compute/room",
        "duplicate_column",
        "grouping column",
    ),
    "row window above a union": (
        {
            **IN,
            "u": {"op": "union", "inputs": ["in", "in"]},
            "a": {
                "op": "aggregate",
                "input": "u",
                "window": {"kind": "tumbling", "size": 3},
                "compute": {"n": "count(*)"},
            },
        },
        "a",
        "nodes/a/window",
        "order_required",
        '"order": "time"',
    ),
    "first above a union": (
        {
            **IN,
            "u": {"op": "union", "inputs": ["in", "in"]},
            "a": {"op": "aggregate", "input": "u", "window": SECOND, "compute": {"f": "first(home)"}},
        },
        "a",
        "nodes/a/compute/f",
        "order_required",
        "node 'u' gives them in none",
    ),
    "join without bounds": (join(within=None), "j", "nodes/j", "invalid_window", "not none"),
    "join with both bounds": (join(window=SECOND), "j", "nodes/j", "invalid_window", "not both"),
    "unlike keys": (
        join(on=[["room", "home"]]),
        "j",
        "nodes/j/on/0",
        "type_mismatch",
        "left 'room' is string, right 'home' is int",
    ),
    "unknown key column": (
        join(on=[["home", "house"]]),
        "j",
        "nodes/j/on/0/1",
        "unknown_field",
        "field of 'doors'",
    ),
    "union of unlike columns": (
        {**IN, **DOORS, "u": {"op": "union", "inputs": ["in", "doors"]}},
        "u",
        "nodes/u/inputs/1",
        "schema_mismatch",
        "make them equal with a project",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_window_or_join_gets_its_own_problem(name: str) -> None:
    nodes, root, pointer, code, words = BAD[name]
    found = [item for item in problems(nodes, root) if item.pointer == pointer]
    assert found, problems(nodes, root)
    assert found[0].code == code
    assert words in found[0].detail


def test_columns_of_both_sides_must_be_renamed() -> None:
    found = problems(join(compute=None), "j")
    assert {item.pointer for item in found} == {"nodes/j/compute"}
    assert 'name the result\'s columns in `compute`, for example `"left_ts": "l.ts"`' in found[0].detail


def test_a_windowed_operator_above_another_needs_other_names() -> None:
    nodes = {
        **aggregate(by=["room"]),
        "e": {"op": "except", "left": "a", "right": "a", "window": SECOND},
    }
    assert {item.code for item in problems(nodes, "e")} == {"duplicate_column"}


@pytest.mark.parametrize("nodes", [select("TRUE"), join()])
def test_a_one_time_query_needs_a_window(nodes: dict[str, Any]) -> None:
    root = "s" if "s" in nodes else "j"
    typed = infer(Plan.parse({"root": root, "nodes": nodes}), STREAMS)
    with pytest.raises(InvalidPlan, match="ends with the first window that closes"):
        check_one_time(typed)


def test_a_windowed_query_can_be_one_time() -> None:
    check_one_time(infer(Plan.parse({"root": "a", "nodes": aggregate()}), STREAMS))
