"""Workload of the agreement benchmark: three classes of four queries, with operators of distinct kinds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.workload.class_workloads import SHAPE
from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.typed_plan import TypedPlan

PRIORITIES = {"H": 6, "C": 3, "N": 1}


@dataclass(frozen=True, slots=True)
class Chain:
    """A typed query of a class, and its operators for the simulator: name, kind, inputs."""

    name: str
    class_name: str
    streams: tuple[str, ...]
    plan: TypedPlan
    operators: tuple[tuple[str, str, tuple[str, ...]], ...]


def chains() -> list[Chain]:
    """Return four queries for each class: three selections of different selectivity, and a union."""
    made = []
    for class_name in PRIORITIES:
        for number, least in enumerate((8, 20, 32)):
            made.append(_select(f"{class_name}{number}", class_name, least))
        made.append(_union(f"{class_name}u", class_name))
    return made


def _select(name: str, class_name: str, least: int) -> Chain:
    nodes = {
        "in": {"op": "source", "stream": name},
        "warm": {"op": "select", "input": "in", "where": f"temperature >= {least} OR humidity > 90"},
        "answer": {
            "op": "project",
            "input": "warm",
            "compute": {"location": "location", "fahrenheit": "temperature * 1.8 + 32"},
        },
    }
    operators = (
        ("warm", "select", (name,)),
        ("answer", "project", ("warm",)),
        ("out", "output", ("answer",)),
    )
    return _chain(name, class_name, (name,), "answer", nodes, operators)


def _union(name: str, class_name: str) -> Chain:
    streams = (f"{name}_left", f"{name}_right")
    nodes = {
        "left": {"op": "source", "stream": streams[0]},
        "right": {"op": "source", "stream": streams[1]},
        "both": {"op": "union", "inputs": ["left", "right"]},
        "warm": {"op": "select", "input": "both", "where": "temperature >= 20"},
    }
    operators = (
        ("both", "union", streams),
        ("warm", "select", ("both",)),
        ("out", "output", ("warm",)),
    )
    return _chain(name, class_name, streams, "warm", nodes, operators)


def _chain(
    name: str,
    class_name: str,
    streams: tuple[str, ...],
    root: str,
    nodes: dict[str, Any],
    operators: tuple[tuple[str, str, tuple[str, ...]], ...],
) -> Chain:
    plan = infer(Plan.parse({"root": root, "nodes": nodes}), dict.fromkeys(streams, SHAPE))
    return Chain(name, class_name, streams, plan, operators)
