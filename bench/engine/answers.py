"""Answers of the engine and of hand-written loops as tables, to be compared with the reference."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from bench.workload.by_hand import Part
from bench.workload.queries import BenchQuery
from bench.workload.readings import plain
from mavstream_server.columns.batch import Batch
from mavstream_server.columns.column import Array, Column


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
