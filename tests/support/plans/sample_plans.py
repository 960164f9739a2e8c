"""Valid plans over two streams, which tests make invalid."""

from __future__ import annotations

from typing import Any

import pytest

from mavstream_protocol.errors import InvalidPlan, ProblemItem
from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
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
