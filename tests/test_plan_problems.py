"""Bad plans: each gets its own problem, with a pointer, a code and words that help."""

from __future__ import annotations

from typing import Any

import pytest

from mavstream_protocol.inference import check_one_time, infer
from mavstream_protocol.plan import Plan
from mavstream_protocol.problems import InvalidPlan, ProblemItem
from mavstream_protocol.typed_plan import StreamShape
from mavstream_server.testing.streams import parse_fields

STREAMS = {
    "readings": StreamShape(
        parse_fields("ts timestamp, home int, room string null, temperature int, humidity float null"), "ts"
    ),
    "doors": StreamShape(parse_fields("ts timestamp, home int, open bool"), "ts"),
}
IN = {"in": {"op": "source", "stream": "readings"}}
DOORS = {"doors": {"op": "source", "stream": "doors"}}
SECOND = {"kind": "tumbling", "size": "1s"}


def problems(nodes: dict[str, Any], root: str) -> list[ProblemItem]:
    with pytest.raises(InvalidPlan) as caught:
        infer(Plan.parse({"root": root, "nodes": nodes}), STREAMS)
    return list(caught.value.items)


def select(where: str) -> dict[str, Any]:
    return {**IN, "s": {"op": "select", "input": "in", "where": where}}


def aggregate(**changes: Any) -> dict[str, Any]:
    node = {"op": "aggregate", "input": "in", "window": SECOND, "compute": {"n": "count(*)"}}
    return {**IN, "a": {**node, **changes}}


def join(**changes: Any) -> dict[str, Any]:
    node = {
        "op": "join",
        "left": "in",
        "right": "doors",
        "on": [["home", "home"]],
        "within": "1s",
        "compute": {"home": "l.home"},
    }
    return {**IN, **DOORS, "j": {**node, **changes}}


BAD: dict[str, tuple[dict[str, Any], str, str, str, str]] = {
    "unknown stream": (
        {"in": {"op": "source", "stream": "reading"}},
        "in",
        "nodes/in/stream",
        "unknown_stream",
        "did you mean 'readings'",
    ),
    "unknown table": (
        {"t": {"op": "table", "table": "rooms"}},
        "t",
        "nodes/t/table",
        "unknown_table",
        "known are: none",
    ),
    "unknown field": (
        select("temprature > 3"),
        "s",
        "nodes/s/where",
        "unknown_field",
        "temperature",
    ),
    "unknown function": (
        select("sine(temperature) > 3"),
        "s",
        "nodes/s/where",
        "unknown_function",
        "sine",
    ),
    "unknown operator": (
        {**IN, "s": {"op": "filter", "input": "in"}},
        "s",
        "nodes/s/op",
        "unknown_operator",
        "known are: source, table, select",
    ),
    "no operator": ({**IN, "s": {"input": "in"}}, "s", "nodes/s", "missing_operator", "no `op`"),
    "unknown key": (
        {**IN, "s": {"op": "select", "input": "in", "where": "TRUE", "when": 1}},
        "s",
        "nodes/s/when",
        "unknown_key",
        "leave it out",
    ),
    "missing key": (
        {**IN, "s": {"op": "select", "input": "in"}},
        "s",
        "nodes/s/where",
        "missing_key",
        "where",
    ),
    "predicate of another type": (
        select("temperature + 1"),
        "s",
        "nodes/s/where",
        "type_mismatch",
        "bool",
    ),
    "comparison of unlike types": (
        select("room > 3"),
        "s",
        "nodes/s/where",
        "type_mismatch",
        "room",
    ),
    "syntax": (select("temperature >"), "s", "nodes/s/where", "syntax_error", ""),
    "aggregate in a select": (
        select("avg(temperature) > 3"),
        "s",
        "nodes/s/where",
        "aggregate_not_allowed",
        "avg",
    ),
    "column that is not grouped": (
        aggregate(compute={"x": "temperature"}),
        "a",
        "nodes/a/compute/x",
        "not_grouped",
        "temperature",
    ),
    "long expression": (
        select(" OR ".join(["temperature > 3"] * 400)),
        "s",
        "nodes/s/where",
        "expression_too_long",
        "4096",
    ),
    "deep expression": (
        select("(" * 500 + "temperature" + ")" * 500 + " > 3"),
        "s",
        "nodes/s/where",
        "expression_too_deep",
        "64",
    ),
    "cycle": (
        {
            "a": {"op": "select", "input": "b", "where": "TRUE"},
            "b": {"op": "select", "input": "a", "where": "TRUE"},
        },
        "a",
        "nodes/a",
        "cycle",
        "a -> b -> a",
    ),
    "two roots": (
        {**IN, **DOORS},
        "in",
        "nodes/doors",
        "two_roots",
        "nobody reads node 'doors'",
    ),
    "unused node": (
        {
            **IN,
            **DOORS,
            "x": {"op": "select", "input": "doors", "where": "open"},
            "y": {"op": "select", "input": "x", "where": "open"},
        },
        "in",
        "nodes/doors",
        "unused_node",
        "does not lead to the root",
    ),
    "root in the middle": (
        {**IN, "s": {"op": "union", "inputs": ["in", "in"]}},
        "in",
        "nodes/s",
        "two_roots",
        "nobody reads node 's'",
    ),
    "unknown root": (IN, "out", "root", "unknown_node", "unknown node 'out'"),
    "unknown input": (
        {**IN, "s": {"op": "select", "input": "inn", "where": "TRUE"}},
        "s",
        "nodes/s/input",
        "unknown_node",
        "did you mean 'in'",
    ),
    "split without output": (
        {
            **IN,
            "p": {"op": "split", "input": "in", "outputs": {"hot": "temperature > 3"}},
            "s": {"op": "select", "input": "p", "where": "TRUE"},
        },
        "s",
        "nodes/s/input",
        "unknown_node",
        "'p.hot'",
    ),
    "output of what is no split": (
        {**IN, "s": {"op": "select", "input": "in.hot", "where": "TRUE"}},
        "s",
        "nodes/s/input",
        "unknown_node",
        "one output",
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
    "reserved output": (
        {
            **IN,
            "p": {"op": "split", "input": "in", "outputs": {"else": "temperature > 3"}},
            "s": {"op": "select", "input": "p.else", "where": "TRUE"},
        },
        "s",
        "nodes/p/outputs/else",
        "reserved_name",
        "choose another name",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_plan_gets_its_own_problem(name: str) -> None:
    nodes, root, pointer, code, words = BAD[name]
    found = [item for item in problems(nodes, root) if item.pointer == pointer]
    assert found, problems(nodes, root)
    assert found[0].code == code
    assert words in found[0].detail


def test_all_faults_of_a_plan_are_told_at_once() -> None:
    nodes = {
        **IN,
        **DOORS,
        "s": {"op": "select", "input": "in", "where": "nope > 3"},
        "d": {"op": "select", "input": "doors", "where": "open + 1"},
        "j": {"op": "join", "left": "s", "right": "d", "on": [["home", "home"]], "within": "1s"},
    }
    assert {item.pointer for item in problems(nodes, "j")} == {"nodes/d/where", "nodes/s/where"}


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


def test_the_problem_can_be_sent_as_it_is() -> None:
    with pytest.raises(InvalidPlan) as caught:
        Plan.parse({"root": "x", "nodes": {"x": {"op": "nothing"}}})
    problem = caught.value.problem()
    assert problem.status == 422
    assert problem.code == "invalid_plan"
    assert problem.errors[0].pointer == "nodes/x/op"


def test_a_plan_that_is_no_object_at_all_is_told_so() -> None:
    with pytest.raises(InvalidPlan, match="plan"):
        Plan.parse([1, 2])


@pytest.mark.parametrize("nodes", [select("TRUE"), join()])
def test_a_one_time_query_needs_a_window(nodes: dict[str, Any]) -> None:
    root = "s" if "s" in nodes else "j"
    typed = infer(Plan.parse({"root": root, "nodes": nodes}), STREAMS)
    with pytest.raises(InvalidPlan, match="ends with the first window that closes"):
        check_one_time(typed)


def test_a_windowed_query_can_be_one_time() -> None:
    check_one_time(infer(Plan.parse({"root": "a", "nodes": aggregate()}), STREAMS))


def test_types_flow_through_the_whole_plan() -> None:
    nodes = {
        **aggregate(
            by=["room"], compute={"n": "count(*)", "mean": "avg(temperature)", "top": "max(humidity)"}
        ),
        "p": {"op": "project", "input": "a", "compute": {"room": "room", "f": "mean * 1.8 + 32", "n": "n"}},
    }
    typed = infer(Plan.parse({"root": "p", "nodes": nodes}), STREAMS)
    shown = {
        name: [(f.name, f.type.value, f.nullable) for f in typed.nodes[name].schema] for name in ("a", "p")
    }
    assert shown == {
        "a": [
            ("room", "string", True),
            ("n", "int", False),
            ("mean", "float", True),
            ("top", "float", True),
            ("window_start", "timestamp", False),
            ("window_end", "timestamp", False),
        ],
        "p": [("room", "string", True), ("f", "float", True), ("n", "int", False)],
    }


def test_operator_paths_lead_from_each_leaf_to_the_root() -> None:
    nodes = {**join(), "s": {"op": "select", "input": "j", "where": "home > 1"}}
    typed = infer(Plan.parse({"root": "s", "nodes": nodes}), STREAMS)
    assert typed.paths() == (("in", "j", "s"), ("doors", "j", "s"))
