"""Inference of valid plans: the types of every operator, and the operator paths."""

from __future__ import annotations

from tests.support.plans.sample_plans import STREAMS, aggregate, join

from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan


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
