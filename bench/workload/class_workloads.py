"""Workloads A, B and C of the CQC paper: 21 queries in three classes, each on streams of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_protocol.typed_plan import StreamShape, TypedPlan

SCHEMA = Schema(
    (
        Field("sensor_id", FieldType.INT),
        Field("location", FieldType.STRING),
        Field("temperature", FieldType.INT),
        Field("humidity", FieldType.INT),
    )
)
SHAPE = StreamShape(SCHEMA, None)
_SELECTIVITIES = (0.25, 0.4, 0.55, 0.7, 0.85, 1.0)


@dataclass(frozen=True, slots=True)
class Query:
    """A query of a class, typed, and the streams that it reads alone."""

    name: str
    class_name: str
    streams: tuple[str, ...]
    plan: TypedPlan


@dataclass(frozen=True, slots=True)
class Workload:
    """Queries by class as (aggregates, joins, selections), and the priorities of the classes."""

    priorities: dict[str, int]
    kinds: dict[str, tuple[int, int, int]]

    def queries(self) -> list[Query]:
        """Return the queries, numbered within their kind."""
        made: list[Query] = []
        for class_name, counts in self.kinds.items():
            for kind, count in zip((_aggregate, _join, _select), counts, strict=True):
                for number in range(count):
                    made.append(kind(f"{class_name}{len(made)}", class_name, number))
        return made


WORKLOADS = {
    "A": Workload({"H": 6, "C": 3, "N": 1}, {"H": (3, 2, 2), "C": (3, 2, 2), "N": (3, 2, 2)}),
    "B": Workload({"H": 3, "C": 2, "N": 1}, {"H": (0, 2, 0), "C": (4, 2, 2), "N": (5, 2, 4)}),
    "C": Workload({"H": 6, "C": 3, "N": 1}, {"H": (0, 2, 0), "C": (4, 2, 2), "N": (5, 2, 4)}),
}


def _select(name: str, class_name: str, number: int) -> Query:
    least = round(41 * (1 - _SELECTIVITIES[number % len(_SELECTIVITIES)]))
    nodes = {
        "in": {"op": "source", "stream": name},
        "warm": {"op": "select", "input": "in", "where": f"temperature >= {least}"},
        "answer": {
            "op": "project",
            "input": "warm",
            "compute": {"location": "location", "fahrenheit": "temperature * 1.8 + 32"},
        },
    }
    return _query(name, class_name, (name,), "answer", nodes)


def _aggregate(name: str, class_name: str, number: int) -> Query:
    nodes = {
        "in": {"op": "source", "stream": name},
        "mean": {
            "op": "aggregate",
            "input": "in",
            "by": ["location"],
            "window": {"kind": "tumbling", "size": "10ms"},
            "compute": {"n": "count(*)", "mean": "avg(temperature)", "top": "max(humidity)"},
        },
    }
    return _query(name, class_name, (name,), "mean", nodes)


def _join(name: str, class_name: str, number: int) -> Query:
    streams = (f"{name}_left", f"{name}_right")
    nodes = {
        "hot": {"op": "source", "stream": streams[0]},
        "wet": {"op": "source", "stream": streams[1]},
        "pairs": {
            "op": "join",
            "left": "hot",
            "right": "wet",
            "on": [["sensor_id", "sensor_id"]],
            "within": "10ms",
            "compute": {"location": "l.location", "temperature": "l.temperature", "humidity": "r.humidity"},
        },
    }
    return _query(name, class_name, streams, "pairs", nodes)


def _query(name: str, class_name: str, streams: tuple[str, ...], root: str, nodes: dict[str, Any]) -> Query:
    plan = infer(Plan.parse({"root": root, "nodes": nodes}), dict.fromkeys(streams, SHAPE))
    return Query(name, class_name, streams, plan)
