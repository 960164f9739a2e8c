"""The budget of a plan as a whole: what is too large is named, with the limit and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from mavstream_protocol.errors import InvalidPlan, ProblemItem
from mavstream_protocol.plans.budget import MAX_BYTES, MAX_COLUMNS, MAX_PARTS, MAX_PROBLEMS, check_bytes
from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_protocol.typed_plan import StreamShape, TypedPlan

STREAMS = {"s": StreamShape(Schema(tuple(Field(f"c{n}", FieldType.INT) for n in range(256))), None)}


def projects(count: int, columns: int, text: str) -> TypedPlan:
    nodes: dict[str, Any] = {"in": {"op": "source", "stream": "s"}}
    for level in range(count):
        compute = {f"c{n}": text for n in range(columns)}
        below = f"p{level - 1}" if level else "in"
        nodes[f"p{level}"] = {"op": "project", "input": below, "compute": compute}
    return infer(Plan.parse({"root": f"p{count - 1}", "nodes": nodes}), STREAMS)


def refused(count: int, columns: int, text: str) -> ProblemItem:
    with pytest.raises(InvalidPlan) as caught:
        projects(count, columns, text)
    (item,) = caught.value.items
    assert item.code == "plan_too_large"
    return item


def test_columns_of_all_nodes_are_limited() -> None:
    assert len(projects(MAX_COLUMNS // 256, 256, "c0").nodes) == MAX_COLUMNS // 256 + 1
    item = refused(MAX_COLUMNS // 256 + 1, 256, "c0")
    assert item.pointer == "plan"
    assert item.detail == (
        "the plan is too large: its nodes may compute at most 4,096 columns all together, got 4,352 or "
        "more; compute fewer columns, or split it into several queries"
    )


def test_parts_of_all_expressions_are_limited() -> None:
    text = "+".join(["c0"] * 64)  # 127 parts
    assert 2 * 60 * 127 < MAX_PARTS < 3 * 60 * 127
    projects(2, 60, text)
    item = refused(3, 60, text)
    assert "at most 16,384 parts (names, constants, operators), got " in item.detail


def test_nodes_that_hand_on_columns_cost_nothing() -> None:
    nodes: dict[str, Any] = {"in": {"op": "source", "stream": "s"}}
    for n in range(255):
        below = f"s{n - 1}" if n else "in"
        nodes[f"s{n}"] = {"op": "select", "input": below, "where": "c0 > 0"}
    typed = infer(Plan.parse({"root": "s254", "nodes": nodes}), STREAMS)
    assert typed.schema == STREAMS["s"].schema


def test_columns_that_joins_add_by_themselves_count() -> None:
    nodes: dict[str, Any] = {"in": {"op": "source", "stream": "s"}}
    side = "in"
    for n in range(128):
        compute = {f"n{n}_{column}": f"c{column}" for column in range(64)}
        nodes[f"p{n}"] = {"op": "project", "input": "in", "compute": compute}
        if n:
            nodes[f"w{n}"] = {"op": "join", "left": side, "right": f"p{n}", "within": "1s", "on": []}
            side = f"w{n}"
        else:
            side = "p0"
    with pytest.raises(InvalidPlan) as caught:
        infer(Plan.parse({"root": side, "nodes": nodes}), STREAMS)
    assert caught.value.items[0].code == "plan_too_large"


def test_a_text_that_is_too_long_is_refused() -> None:
    check_bytes(MAX_BYTES)
    with pytest.raises(InvalidPlan, match="its JSON text may have at most 1,048,576 bytes, got 1,048,577"):
        check_bytes(MAX_BYTES + 1)


def test_the_first_errors_are_reported() -> None:
    with pytest.raises(InvalidPlan) as caught:
        projects(1, 256, "missing")
    assert len(caught.value.items) == MAX_PROBLEMS
