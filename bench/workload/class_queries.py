"""The queries of a class, all of them on one stream: selects, windows and joins, as plans and in SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

_SELECTS, _AGGREGATES, _JOINS = 6, 16, 8
READERS = _SELECTS + _AGGREGATES + 2 * _JOINS
"""Sources of a class's queries."""
_JOINED_US = 20_000


@dataclass(frozen=True, slots=True)
class ClassQuery:
    """A query of a class, and its answer in SQL over the table `readings`."""

    kind: str
    nodes: Mapping[str, Any]
    """The plan's nodes on the stream; the root is called `answer`."""
    sql: str
    columns: tuple[str, ...]
    due: Callable[[pa.Table], np.ndarray]
    """Returns the event time (us) of the row that completes each answer: it cannot be answered before."""
    floats: frozenset[str] = frozenset()

    @property
    def plan(self) -> dict[str, Any]:
        """The plan as a server takes it."""
        return {"root": "answer", "nodes": self.nodes}


def class_queries(stream: str) -> list[ClassQuery]:
    """Return the queries of a class on its stream."""
    return [
        *(_select(stream, 30 + n) for n in range(_SELECTS)),
        *(_aggregate(stream, 100 + 20 * n) for n in range(_AGGREGATES)),
        *(_join(stream, 35 + n, 90 + n) for n in range(_JOINS)),
    ]


def _select(stream: str, least: int) -> ClassQuery:
    where = f"temperature > {least} AND humidity < 30"
    return ClassQuery(
        "select",
        {
            "in": {"op": "source", "stream": stream},
            "hot": {"op": "select", "input": "in", "where": where},
            "answer": {
                "op": "project",
                "input": "hot",
                "compute": {"ts": "ts", "location": "location", "fahrenheit": "temperature * 1.8 + 32"},
            },
        },
        f"SELECT ts, location, temperature * 1.8::DOUBLE + 32 AS fahrenheit FROM readings WHERE {where}",
        ("ts", "location", "fahrenheit"),
        lambda answer: _microseconds(answer, "ts"),
        frozenset({"fahrenheit"}),
    )


def _aggregate(stream: str, size_ms: int) -> ClassQuery:
    size = size_ms * 1000
    return ClassQuery(
        "aggregate",
        {
            "in": {"op": "source", "stream": stream},
            "answer": {
                "op": "aggregate",
                "input": "in",
                "by": ["location"],
                "window": {"kind": "tumbling", "size": f"{size_ms}ms"},
                "compute": {"n": "count(*)", "mean": "avg(temperature)", "top": "max(humidity)"},
            },
        },
        # A window is answered when a row at or after its end has come.
        f"""SELECT * FROM (
                SELECT ts // {size} * {size} AS window_start, window_start + {size} AS window_end, location,
                       count(*) AS n, avg(temperature) AS mean, max(humidity) AS top
                FROM readings GROUP BY ALL)
            WHERE window_end <= (SELECT max(ts) FROM readings)""",
        ("window_start", "window_end", "location", "n", "mean", "top"),
        lambda answer: _microseconds(answer, "window_end"),
        frozenset({"mean"}),
    )


def _join(stream: str, hot: int, wet: int) -> ClassQuery:
    source = {"op": "source", "stream": stream}
    return ClassQuery(
        "join",
        {
            "a": source,
            "b": source,
            "hot": {"op": "select", "input": "a", "where": f"temperature > {hot}"},
            "wet": {"op": "select", "input": "b", "where": f"humidity > {wet}"},
            "answer": {
                "op": "join",
                "left": "hot",
                "right": "wet",
                "on": [["sensor_id", "sensor_id"]],
                "within": f"{_JOINED_US // 1000}ms",
                "compute": {
                    "ts": "l.ts",
                    "wet_ts": "r.ts",
                    "temperature": "l.temperature",
                    "humidity": "r.humidity",
                },
            },
        },
        # The bucket only saves the reference from comparing all times of a sensor.
        f"""SELECT l.ts, r.ts AS wet_ts, l.temperature, r.humidity
            FROM (SELECT *, ts // {_JOINED_US} + unnest([-1, 0, 1]) AS bucket FROM readings
                  WHERE temperature > {hot}) l
            JOIN (SELECT * FROM readings WHERE humidity > {wet}) r
              ON l.sensor_id = r.sensor_id AND l.bucket = r.ts // {_JOINED_US}
             AND r.ts BETWEEN l.ts - {_JOINED_US} AND l.ts + {_JOINED_US}""",
        ("ts", "wet_ts", "temperature", "humidity"),
        lambda answer: np.maximum(_microseconds(answer, "ts"), _microseconds(answer, "wet_ts")),
    )


def _microseconds(answer: pa.Table, name: str) -> np.ndarray:
    times: np.ndarray = answer[name].cast(pa.int64()).to_numpy()
    return times
