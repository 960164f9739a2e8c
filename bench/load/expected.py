"""The expected answers of a class's queries to a schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from bench.load.receiver import Received
from bench.load.schedule import Schedule
from bench.load.server_process import ServerProcess
from bench.workload.class_queries import ClassQuery, class_queries
from bench.workload.reference import Reference


class ExpectedAnswers:
    """What DuckDB answers to the queries of a class, over all rows of a schedule."""

    def __init__(self, schedule: Schedule, queries: Sequence[ClassQuery] | None = None) -> None:
        rows = _plain_times(pa.Table.from_batches(list(schedule.batches())))
        known = class_queries("readings") if queries is None else queries
        self._references = [Reference(query, {"readings": rows}) for query in known]

    def counts(self, ids: Sequence[str]) -> dict[str, int]:
        """Return the number of answers by id, given the ids of the queries."""
        return {id_: one.rows for id_, one in zip(ids, self._references, strict=True)}

    def lost(self, running: ServerProcess, ids: Sequence[str], received: Mapping[str, Received]) -> int:
        """Return how many answers are missing, wrong or too many."""
        wrong = 0
        for id_, reference in zip(ids, self._references, strict=True):
            given = int(running.http.get(f"/v1/queries/{id_}").json()["results"])
            wrong += reference.missing(_plain_times(received[id_].table)) + abs(given - reference.rows)
        return wrong


def _plain_times(table: pa.Table) -> pa.Table:
    """Return a table with its times as microseconds."""
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(pa.int64()))
    return table
