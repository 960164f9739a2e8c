"""Floats above a union or a join without order: the same bits however the inputs alternate."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
from mavstream_server.scheduling.registry import POLICIES
from mavstream_server.testing import ManualClock, ScriptedStream, run_plan

FIELDS = "at timestamp, room int, x float"
MS = 1000
SOURCES = {"a": {"op": "source", "stream": "left"}, "b": {"op": "source", "stream": "right"}}
COMPUTE = {"total": "sum(x)", "mean": "avg(x)", "dev": "stddev(x)", "low": "min(x)", "n": "count(*)"}


def aggregate(below: str, by: list[str], hop: str = "20ms") -> dict[str, Any]:
    window = {"kind": "hopping", "size": "20ms", "hop": hop}
    return {"op": "aggregate", "input": below, "by": by, "window": window, "compute": COMPUTE}


UNION = {**SOURCES, "u": {"op": "union", "inputs": ["a", "b"]}}
JOIN = {
    **SOURCES,
    "j": {
        "op": "join",
        "left": "a",
        "right": "b",
        "on": [["room", "room"]],
        "within": "3ms",
        "compute": {"room": "l.room", "x": "l.x * r.x"},
    },
}
PLANS = {
    "union": {**UNION, "out": aggregate("u", ["room"])},
    "union, overlapping": {**UNION, "out": aggregate("u", ["room"], "5ms")},
    "union, one group": {**UNION, "out": aggregate("u", [])},
    "join": {**JOIN, "out": aggregate("j", ["room"])},
    "join, overlapping": {**JOIN, "out": aggregate("j", [], "5ms")},
    "above a project": {
        **UNION,
        "p": {"op": "project", "input": "u", "compute": {"room": "room", "x": "x / 3"}},
        "out": aggregate("p", ["room"]),
    },
}


@pytest.fixture
def streams(tmp_path: Path) -> list[ScriptedStream]:
    random = Random(3)
    made = []
    for name in ("left", "right"):
        stream = ScriptedStream(tmp_path, name, FIELDS, ManualClock(), event_time="at")
        rows = [
            (n * MS // 4, random.randrange(3), random.gauss(0, 1) * 10.0 ** random.randint(-8, 8))
            for n in range(400)
        ]
        stream.rows(*rows, frame=7)
        stream.complete()
        made.append(stream)
    return made


@pytest.mark.parametrize("plan", PLANS)
def test_answers_are_the_same_bits_however_inputs_alternate(plan: str, streams: list[ScriptedStream]) -> None:
    def answer(policy: str, train: int, swapped: bool) -> list[str]:
        nodes = dict(PLANS[plan])
        if swapped and "u" in nodes:
            nodes["u"] = {"op": "union", "inputs": ["b", "a"]}
        run = run_plan(nodes, "out", streams[::-1] if swapped else streams, policy=policy, train=train)
        return sorted(map(repr, run.rows()))

    expected = answer("rr", 4096, False)
    assert expected
    for policy in sorted(POLICIES):
        assert answer(policy, 1, False) == expected, policy
        assert answer(policy, 13, True) == expected, policy


def test_a_plan_knows_where_its_rows_are_in_order(streams: list[ScriptedStream]) -> None:
    nodes = {
        **PLANS["union"],
        "grouped": aggregate("a", ["room"]),
        "single": aggregate("u", []),
        "merged": {"op": "union", "inputs": ["a", "b"], "order": "time"},
        "above": aggregate("merged", ["room"]),
        "rest": {"op": "union", "inputs": ["grouped", "above", "out"]},
        "rest2": {"op": "select", "input": "rest", "where": "n > 0"},
        "j": {
            "op": "join",
            "left": "rest2",
            "right": "single",
            "on": [],
            "within": "1ms",
            "compute": {"n": "l.n"},
        },
    }
    plan = infer(Plan.parse({"root": "j", "nodes": nodes}), {s.name: s.shape for s in streams})
    ordered = {name for name, is_ordered in plan.ordered.items() if is_ordered}
    assert ordered == {"a", "b", "grouped", "single", "merged", "above"}
