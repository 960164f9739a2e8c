"""Workload of the agreement benchmark: three classes of four queries, with operators of distinct kinds."""

from __future__ import annotations

from bench.simulation.live_query import LiveQuery, live_query

PRIORITIES = {"H": 6, "C": 3, "N": 1}
_LATENCY_TARGET = 200  # us: sources do not wait for more rows


def chains() -> list[LiveQuery]:
    """Return four queries for each class: three selections of different selectivity, and a union."""
    made = []
    for class_name in PRIORITIES:
        for number, least in enumerate((8, 20, 32)):
            made.append(_select(f"{class_name}{number}", class_name, least))
        made.append(_union(f"{class_name}u", class_name))
    return made


def _select(name: str, class_name: str, least: int) -> LiveQuery:
    nodes = {
        "in": {"op": "source", "stream": name},
        "warm": {"op": "select", "input": "in", "where": f"temperature >= {least} OR humidity > 90"},
        "answer": {
            "op": "project",
            "input": "warm",
            "compute": {"location": "location", "fahrenheit": "temperature * 1.8 + 32"},
        },
    }
    return live_query(name, class_name, (name,), nodes, _LATENCY_TARGET)


def _union(name: str, class_name: str) -> LiveQuery:
    streams = (f"{name}_left", f"{name}_right")
    nodes = {
        "left": {"op": "source", "stream": streams[0]},
        "right": {"op": "source", "stream": streams[1]},
        "both": {"op": "union", "inputs": ["left", "right"]},
        "warm": {"op": "select", "input": "both", "where": "temperature >= 20"},
    }
    return live_query(name, class_name, streams, nodes, _LATENCY_TARGET)
