"""Invalid plans: each gets its own problem with a pointer, a code and a helpful message."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.plans.sample_plans import DOORS, IN, problems, select

from mavstream_protocol.errors import InvalidPlan
from mavstream_protocol.plans.plan import Plan

BAD: dict[str, tuple[dict[str, Any], str, str, str, str]] = {
    "unknown stream": (
        {"in": {"op": "source", "stream": "reading"}},
        "in",
        "nodes/in/stream",
        "unknown_stream",
        "did you mean 'readings'",
    ),
    "unknown table": (
        {
            "in": {"op": "source", "stream": "readings"},
            "t": {"op": "table", "table": "rooms"},
            "j": {"op": "join", "left": "in", "right": "t", "on": [["home", "home"]]},
        },
        "j",
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


def test_all_errors_of_a_plan_are_reported_at_once() -> None:
    nodes = {
        **IN,
        **DOORS,
        "s": {"op": "select", "input": "in", "where": "nope > 3"},
        "d": {"op": "select", "input": "doors", "where": "open + 1"},
        "j": {"op": "join", "left": "s", "right": "d", "on": [["home", "home"]], "within": "1s"},
    }
    assert {item.pointer for item in problems(nodes, "j")} == {"nodes/d/where", "nodes/s/where"}


def test_an_invalid_plan_becomes_a_problem_with_status_code_and_pointer() -> None:
    with pytest.raises(InvalidPlan) as caught:
        Plan.parse({"root": "x", "nodes": {"x": {"op": "nothing"}}})
    problem = caught.value.problem()
    assert problem.status == 422
    assert problem.code == "invalid_plan"
    assert problem.errors[0].pointer == "nodes/x/op"


def test_a_plan_that_is_not_an_object_is_refused() -> None:
    with pytest.raises(InvalidPlan, match="plan"):
        Plan.parse([1, 2])
