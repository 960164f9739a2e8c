"""The queries of the engine benchmark: as a plan, by hand, and in SQL for the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bench.workload import by_hand
from bench.workload.by_hand import Part
from mavstream_protocol.plans.plan import Plan


@dataclass(frozen=True, slots=True)
class BenchQuery:
    """A query in three forms that must give the same rows."""

    streams: tuple[str, ...]
    columns: tuple[str, ...]
    nodes: Mapping[str, Any]
    """The plan's nodes; the root is called `answer`."""
    loop: Callable[..., Iterator[Part]]
    """The hand-written loop; takes a reader per stream."""
    sql: str
    """The SQL of the reference answer; times are microseconds."""
    floats: frozenset[str] = frozenset()
    """The columns that are equal when they are close."""

    def plan(self) -> Plan:
        """Return the plan."""
        return Plan.parse({"root": "answer", "nodes": self.nodes})


Q1 = BenchQuery(
    streams=("readings",),
    columns=("ts", "location", "fahrenheit"),
    nodes={
        "in": {"op": "source", "stream": "readings"},
        "hot": {"op": "select", "input": "in", "where": "temperature > 30 AND humidity < 30"},
        "answer": {
            "op": "project",
            "input": "hot",
            "compute": {"ts": "ts", "location": "location", "fahrenheit": "temperature * 1.8 + 32"},
        },
    },
    loop=by_hand.select_and_project,
    sql="""
        SELECT ts, location, temperature * 1.8::DOUBLE + 32 AS fahrenheit
        FROM readings WHERE temperature > 30 AND humidity < 30
    """,
    floats=frozenset({"fahrenheit"}),
)

Q2 = BenchQuery(
    streams=("readings",),
    columns=("window_start", "window_end", "location", "n", "mean", "top"),
    nodes={
        "in": {"op": "source", "stream": "readings"},
        "answer": {
            "op": "aggregate",
            "input": "in",
            "by": ["location"],
            "window": {"kind": "tumbling", "size": "1s"},
            "compute": {"n": "count(*)", "mean": "avg(temperature)", "top": "max(humidity)"},
        },
    },
    loop=by_hand.tumbling_aggregate,
    sql="""
        SELECT ts // 1000000 * 1000000 AS window_start, window_start + 1000000 AS window_end, location,
               count(*) AS n, avg(temperature) AS mean, max(humidity) AS top
        FROM readings GROUP BY ALL
    """,
    floats=frozenset({"mean"}),
)

Q3 = BenchQuery(
    streams=("lefts", "rights"),
    columns=("sensor_id", "left_ts", "right_ts", "left_temperature", "right_temperature"),
    nodes={
        "left": {"op": "source", "stream": "lefts"},
        "right": {"op": "source", "stream": "rights"},
        "answer": {
            "op": "join",
            "left": "left",
            "right": "right",
            "on": [["sensor_id", "sensor_id"]],
            "within": "50ms",
            "compute": {
                "sensor_id": "l.sensor_id",
                "left_ts": "l.ts",
                "right_ts": "r.ts",
                "left_temperature": "l.temperature",
                "right_temperature": "r.temperature",
            },
        },
    },
    loop=by_hand.interval_join,
    # The bucket only saves the reference from comparing all times of a sensor.
    sql="""
        SELECT l.sensor_id, l.ts AS left_ts, r.ts AS right_ts,
               l.temperature AS left_temperature, r.temperature AS right_temperature
        FROM (SELECT *, unnest([ts // 50000 - 1, ts // 50000, ts // 50000 + 1]) AS bucket FROM lefts) l
        JOIN rights r ON l.sensor_id = r.sensor_id AND l.bucket = r.ts // 50000
             AND r.ts BETWEEN l.ts - 50000 AND l.ts + 50000
    """,
)
