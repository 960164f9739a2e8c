"""The queries of a class, all of them on one stream."""

from __future__ import annotations

from typing import Any

_SELECTS, _AGGREGATES, _JOINS = 6, 16, 8
READERS = _SELECTS + _AGGREGATES + 2 * _JOINS
"""Sources of a class's queries."""


def class_plans(stream: str) -> list[dict[str, Any]]:
    """Return the plans of a class on its stream: selects, windows and joins."""
    source = {"op": "source", "stream": stream}
    selects = [
        {
            "root": "answer",
            "nodes": {
                "in": source,
                "hot": {"op": "select", "input": "in", "where": f"temperature > {30 + n} AND humidity < 30"},
                "answer": {
                    "op": "project",
                    "input": "hot",
                    "compute": {"ts": "ts", "location": "location", "fahrenheit": "temperature * 1.8 + 32"},
                },
            },
        }
        for n in range(_SELECTS)
    ]
    aggregates = [
        {
            "root": "mean",
            "nodes": {
                "in": source,
                "mean": {
                    "op": "aggregate",
                    "input": "in",
                    "by": ["location"],
                    "window": {"kind": "tumbling", "size": f"{100 + 20 * n}ms"},
                    "compute": {"n": "count(*)", "mean": "avg(temperature)", "top": "max(humidity)"},
                },
            },
        }
        for n in range(_AGGREGATES)
    ]
    joins = [
        {
            "root": "pairs",
            "nodes": {
                "a": source,
                "b": source,
                "hot": {"op": "select", "input": "a", "where": f"temperature > {35 + n}"},
                "wet": {"op": "select", "input": "b", "where": f"humidity > {90 + n}"},
                "pairs": {
                    "op": "join",
                    "left": "hot",
                    "right": "wet",
                    "on": [["sensor_id", "sensor_id"]],
                    "within": "20ms",
                    "compute": {"ts": "l.ts", "temperature": "l.temperature", "humidity": "r.humidity"},
                },
            },
        }
        for n in range(_JOINS)
    ]
    return [*selects, *aggregates, *joins]
