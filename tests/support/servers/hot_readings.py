"""Readings for tests of queries on real servers: their producer, and the answers of a query."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from tests.support.servers.running_server import RawProducer, RunningServer, eventually
from tests.support.services.query_service import READINGS

from mavstream_protocol import Schema, StreamSpec
from mavstream_protocol.tuples import arrow_schema
from mavstream_protocol.wire.resources import PulledResults

SCHEMA: Schema = StreamSpec.model_validate(READINGS).schema()


class Feed:
    """A producer of readings, one row per second of event time."""

    def __init__(self, server: RunningServer, name: str) -> None:
        self.producer = RawProducer(server, name, "readings")
        self.sequence = 0
        self.clock = 1_000_000

    def temps(self, *temps: int) -> None:
        self.sequence += 1
        rows = [{"at": self.clock + n, "room": "hall", "temp": temp} for n, temp in enumerate(temps)]
        self.clock += 1_000_000
        self.producer.rows("readings", self.sequence, rows)
        self.producer.acked("readings", self.sequence)

    def many(self, first: int, count: int) -> None:
        self.sequence += 1
        columns = [
            pa.array(np.full(count, self.clock), pa.int64()).cast(pa.timestamp("us", "UTC")),
            pa.array(["hall"] * count),
            pa.array(np.arange(first, first + count)),
        ]
        self.clock += 1_000_000
        batch = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(SCHEMA))
        self.producer.arrow("readings", self.sequence, batch)
        self.producer.acked("readings", self.sequence)


def pulled(server: RunningServer, query: str, **params: Any) -> PulledResults:
    answer = server.http.get(f"/v1/queries/{query}/results", params=params)
    assert answer.status_code == 200, answer.text
    return PulledResults.model_validate_json(answer.content)


def removed(server: RunningServer, query: str) -> int:
    """Return how many of the oldest results retention has removed."""
    gap = pulled(server, query, after=-1, limit=1).gap
    return gap[1] if gap is not None else 0


def answered(server: RunningServer, query: str, count: int) -> None:
    eventually(lambda: server.http.get(f"/v1/queries/{query}").json()["results"] >= count, f"{count} answers")
