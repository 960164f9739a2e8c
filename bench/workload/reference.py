"""Answers against the reference: DuckDB over the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import duckdb
import pyarrow as pa

_DIGITS = 9


class ReferencedQuery(Protocol):
    """A query that is known in SQL, too."""

    @property
    def sql(self) -> str:
        """Its SQL; times are microseconds."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to compare."""

    @property
    def floats(self) -> frozenset[str]:
        """Those that are equal when they are close."""


class Reference:
    """The correct answer to a query over given tables, computed once."""

    def __init__(self, query: ReferencedQuery, tables: Mapping[str, pa.Table]) -> None:
        self._connection = duckdb.connect()
        for name, table in tables.items():
            self._connection.register(name, table)
        self._connection.execute(f"CREATE TABLE expected AS {query.sql}")
        self._compared = ", ".join(
            f"round({name}, {_DIGITS})" if name in query.floats else name for name in query.columns
        )
        self.rows = self._count("expected")

    def agrees(self, answer: pa.Table) -> bool:
        """Whether an answer has the same rows, as often, in any order; floats to nine digits."""
        return self.rows == answer.num_rows and self.missing(answer) == 0

    def missing(self, answer: pa.Table) -> int:
        """Return how many of the expected rows an answer lacks."""
        self._connection.register("answer", answer)
        return self._count(
            f"(SELECT {self._compared} FROM expected EXCEPT ALL SELECT {self._compared} FROM answer)"
        )

    def _count(self, rows: str) -> int:
        # All rows are fetched: a connection is busy until its last result was read to the end.
        ((count,),) = self._connection.execute(f"SELECT count(*) FROM {rows}").fetchall()
        return int(count)
