"""Answers against the reference: DuckDB over the same rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import duckdb
import numpy as np
import pyarrow as pa

from bench.workload.by_hand import Part
from bench.workload.queries import BenchQuery
from bench.workload.readings import Stream, plain
from mavstream_server.columns.batch import Batch
from mavstream_server.columns.column import Array, Column

_DIGITS = 9


class Reference:
    """The correct answer to a query over given streams, computed once."""

    def __init__(self, query: BenchQuery, streams: Sequence[Stream]) -> None:
        self._connection = duckdb.connect()
        for stream in streams:
            self._connection.register(stream.name, stream.arrow())
        self._connection.execute(f"CREATE TABLE expected AS {query.sql}")
        self._compared = ", ".join(
            f"round({name}, {_DIGITS})" if name in query.floats else name for name in query.columns
        )

    def agrees(self, answer: pa.Table) -> bool:
        """Whether an answer has the same rows, as often, in any order; floats to nine digits."""
        self._connection.register("answer", answer)
        missing = f"SELECT {self._compared} FROM expected EXCEPT ALL SELECT {self._compared} FROM answer"
        return self._count("expected") == answer.num_rows and self._count(f"({missing})") == 0

    def _count(self, rows: str) -> int:
        # All rows are fetched: a connection is busy until its last result was read to the end.
        ((count,),) = self._connection.execute(f"SELECT count(*) FROM {rows}").fetchall()
        return int(count)


def engine_answer(query: BenchQuery, batches: Iterable[Batch]) -> pa.Table:
    """Return the batches that a query gave as one table."""
    return _table(query, (tuple(batch.columns[name] for name in query.columns) for batch in batches))


def loop_answer(query: BenchQuery, parts: Iterable[Part]) -> pa.Table:
    """Return the answers of a hand-written loop as one table."""
    return _table(query, parts)


def _table(query: BenchQuery, parts: Iterable[Part]) -> pa.Table:
    columns = list(zip(*(map(_values, part) for part in parts), strict=True))
    if not columns:
        raise RuntimeError("a query of the benchmark has no answer; give it more tuples")
    return pa.table(dict(zip(query.columns, map(np.concatenate, columns), strict=True)))


def _values(part: Array | Column) -> Array:
    return plain(part) if isinstance(part, Column) else part
