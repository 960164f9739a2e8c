"""The work of planning grows with the plan and no faster: counted in calls, not in time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from mavstream_protocol.errors import InvalidPlan
from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_protocol.typed_plan import StreamShape
from mavstream_server.optimizer.admission.cost_history import CostHistory
from mavstream_server.optimizer.admission.load import Arrivals

INT = FieldType.INT
STREAMS = {
    "s": StreamShape(Schema((Field("x", INT), Field("k", INT), Field("at", FieldType.TIMESTAMP))), "at"),
}
TABLES = {"t": Schema((Field("k", INT), Field("name", FieldType.STRING)))}
WINDOW = {"kind": "tumbling", "size": "1s"}

Nodes = dict[str, Any]


def plan(nodes: Nodes, root: str) -> dict[str, Any]:
    return {"root": root, "nodes": {"in": {"op": "source", "stream": "s"}, **nodes}}


def long_expressions(size: int) -> dict[str, Any]:
    """Two projects of expressions that are all different and as deep as they may be."""
    nodes: Nodes = {}
    for name, below, read in (("p", "in", "x"), ("q", "p", "c0")):
        compute = {f"c{n}": "+".join([read] * 60) + f"+{n}" for n in range(size)}
        nodes[name] = {"op": "project", "input": below, "compute": compute}
    return plan(nodes, "q")


def chain_of_projects(size: int) -> dict[str, Any]:
    nodes: Nodes = {"p0": {"op": "project", "input": "in", "compute": {f"c{n}": "x" for n in range(8)}}}
    for level in range(1, size):
        compute = {f"c{n}": f"c{n} + 1" for n in range(8)}
        nodes[f"p{level}"] = {"op": "project", "input": f"p{level - 1}", "compute": compute}
    return plan(nodes, f"p{size - 1}")


def conditions_on_computed_columns(size: int) -> dict[str, Any]:
    """Selects whose columns are computed in several steps, so that their origins have to be traced."""
    nodes = chain_of_projects(size)["nodes"]
    for level in range(size):
        where = " AND ".join(f"c{n} > {level}" for n in range(8))
        below = f"s{level - 1}" if level else f"p{size - 1}"
        nodes[f"s{level}"] = {"op": "select", "input": below, "where": where}
    return plan(nodes, f"s{size - 1}")


def diamonds_below_a_table(size: int) -> dict[str, Any]:
    """Unions that read the same node twice: there are two to the power of `size` ways down."""
    nodes: Nodes = {"u0": {"op": "union", "inputs": ["in", "in"]}}
    for level in range(1, size):
        nodes[f"u{level}"] = {"op": "union", "inputs": [f"u{level - 1}", f"u{level - 1}"]}
    nodes["t"] = {"op": "table", "table": "t"}
    nodes["j"] = {
        "op": "join",
        "left": f"u{size - 1}",
        "right": "t",
        "on": [["k", "k"]],
        "compute": {"name": "r.name"},
    }
    return plan(nodes, "j")


def scaled_aggregates_above_splits(size: int) -> dict[str, Any]:
    nodes: Nodes = {}
    below = "in"
    for n in range(size):
        nodes[f"split{n}"] = {"op": "split", "input": below, "outputs": {"some": f"x > {n}"}}
        nodes[f"u{n}"] = {"op": "union", "inputs": [f"split{n}.some", f"split{n}.else"]}
        below = f"u{n}"
    nodes["a"] = {
        "op": "aggregate",
        "input": below,
        "window": WINDOW,
        "compute": {"n": "count(*)"},
        "scaled": True,
    }
    return plan(nodes, "a")


def circle_apart_from_the_root(size: int) -> dict[str, Any]:
    nodes: Nodes = {
        f"c{n}": {"op": "select", "input": f"c{(n + 1) % size}", "where": "x > 0"} for n in range(size)
    }
    return plan({**nodes, "out": {"op": "select", "input": "in", "where": "x > 0"}}, "out")


def work(data: dict[str, Any]) -> int:
    """Count the calls of functions while a plan is typed and assessed."""
    parsed = Plan.parse(data)
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        typed = infer(parsed, STREAMS, TABLES)
        CostHistory().assess(typed, {"s": Arrivals(1000.0, 10.0)})
    except InvalidPlan:
        pass
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (long_expressions, 64),
        (chain_of_projects, 40),
        (conditions_on_computed_columns, 40),
        (diamonds_below_a_table, 8),
        (scaled_aggregates_above_splits, 30),
        (circle_apart_from_the_root, 64),
    ],
)
def test_twice_the_plan_takes_about_twice_the_work(make: Callable[[int], dict[str, Any]], size: int) -> None:
    work(make(size))  # whatever is cached at its first use
    assert work(make(2 * size)) <= 2.5 * work(make(size))


def test_equal_texts_are_parsed_once() -> None:
    text = "+".join(["x"] * 60)
    repeated = {"p": {"op": "project", "input": "in", "compute": {f"c{n}": text for n in range(256)}}}
    once = {"p": {"op": "project", "input": "in", "compute": {"c0": text}}}
    assert work(plan(repeated, "p")) < 20 * work(plan(once, "p"))
