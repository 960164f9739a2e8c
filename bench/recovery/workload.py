"""The workload of the recovery benchmark: joins that hold much state on several streams, and a few selects.

Each join pairs all rows of a stream with rare ones of the same sensor within an hour: its state grows with
the stream, and it answers all the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from bench.load.receiver import Received
from bench.load.schedule import Schedule
from bench.load.server_process import ServerProcess
from bench.workload.class_queries import ClassQuery, class_queries
from bench.workload.readings import BEGIN, EVENT_TIME, FIELDS
from bench.workload.reference import Reference

IMPORTANT = "important"
"""The class of the selects, and their stream."""
PRIORITIES = {IMPORTANT: 6, "default": 1}
SELECTS = 6
ROW_BYTES = 42
"""State of a join for each row of its stream."""
MOST_JOINS = 100
"""Joins on a stream: the rare rows of each have a humidity of their own."""


@dataclass(frozen=True)
class Load:
    """A stream with its schedule and the queries that read it."""

    stream: str
    class_name: str
    schedule: Schedule
    queries: tuple[ClassQuery, ...]

    @cached_property
    def _rows(self) -> pa.Table:
        return _plain_times(pa.Table.from_batches(list(self.schedule.batches())))

    @cached_property
    def _references(self) -> list[Reference]:
        return [Reference(query, {"readings": self._rows}) for query in self.queries]

    def deploy(self, running: ServerProcess) -> list[str]:
        """Create the stream and the queries; returns their ids."""
        running.post("/v1/streams", {"name": self.stream, "fields": FIELDS, "event_time": EVENT_TIME})
        return [
            str(
                running.post(
                    "/v1/queries",
                    {"name": f"{self.stream}_{n}", "class": self.class_name, "plan": query.plan},
                )["id"]
            )
            for n, query in enumerate(self.queries)
        ]

    def counts(self, ids: Sequence[str]) -> dict[str, int]:
        """Return the number of answers to all rows, by id of query."""
        return {id_: one.rows for id_, one in zip(ids, self._references, strict=True)}

    def wrong(self, ids: Sequence[str], received: Mapping[str, Received]) -> int:
        """Return how many answers are missing, wrong or too many."""
        wrong = 0
        for id_, reference in zip(ids, self._references, strict=True):
            table = _plain_times(received[id_].table)
            wrong += reference.missing(table) + abs(table.num_rows - reference.rows)
        return wrong

    def due_ns(self, query: ClassQuery, received: Received, begin: float) -> np.ndarray:
        """Return when the row that completes each answer was due, in ns since the epoch."""
        due: np.ndarray = (query.due(received.table) - BEGIN) * 1000 + int(begin * 1e9)
        return due


def joins(stream: str, number: int) -> tuple[ClassQuery, ...]:
    """Return joins on a stream."""
    return tuple(_join(stream, humidity) for humidity in range(number))


def selects(stream: str) -> tuple[ClassQuery, ...]:
    """Return the selects of the important class."""
    return tuple(class_queries(stream)[:SELECTS])


def _join(stream: str, number: int) -> ClassQuery:
    rare = f"humidity = {number} AND temperature < 10"
    source = {"op": "source", "stream": stream}
    compute = {"ts": "l.ts", "rare_ts": "r.ts", "sensor_id": "l.sensor_id"}
    nodes: dict[str, Any] = {
        "all": source,
        "b": source,
        "rare": {"op": "select", "input": "b", "where": rare},
        "answer": {
            "op": "join",
            "left": "all",
            "right": "rare",
            "on": [["sensor_id", "sensor_id"]],
            "within": "1h",
            "compute": compute,
        },
    }
    return ClassQuery(
        "join",
        nodes,
        f"""SELECT l.ts, r.ts AS rare_ts, l.sensor_id FROM readings l
            JOIN (SELECT * FROM readings WHERE {rare}) r USING (sensor_id)""",
        tuple(compute),
        lambda answer: np.maximum(_microseconds(answer, "ts"), _microseconds(answer, "rare_ts")),
    )


def _microseconds(answer: pa.Table, name: str) -> np.ndarray:
    times: np.ndarray = answer[name].cast(pa.int64()).to_numpy()
    return times


def _plain_times(table: pa.Table) -> pa.Table:
    """Return a table with its times as microseconds."""
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(pa.int64()))
    return table
