"""A query that runs live and in the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.workload.class_workloads import SHAPE
from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.typed_plan import TypedPlan


@dataclass(frozen=True, slots=True)
class LiveQuery:
    """A typed query of a class, and its operators for the simulator: name, kind, inputs."""

    name: str
    class_name: str
    streams: tuple[str, ...]
    plan: TypedPlan
    operators: tuple[tuple[str, str, tuple[str, ...]], ...]
    latency_target: int | None = None
    """Microseconds."""


def live_query(
    name: str,
    class_name: str,
    streams: tuple[str, ...],
    nodes: Mapping[str, Any],
    latency_target: int | None = None,
) -> LiveQuery:
    """Return a query with these nodes, bottom-up; the last one is the root. Each stream is its own."""
    root = list(nodes)[-1]
    plan = infer(Plan.parse({"root": root, "nodes": nodes}), dict.fromkeys(streams, SHAPE))
    read = {node: spec["stream"] for node, spec in nodes.items() if spec["op"] == "source"}
    operators = [
        (node, spec["op"], tuple(read.get(one, one) for one in spec.get("inputs") or [spec["input"]]))
        for node, spec in nodes.items()
        if node not in read
    ]
    return LiveQuery(
        name, class_name, streams, plan, (*operators, ("out", "output", (root,))), latency_target
    )
