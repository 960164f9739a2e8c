"""Expected answers: DuckDB over the rows that were acked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa

from chaos.workload import TABLE_ROWS, ChaosQuery, rows


class Expected:
    """The answers of queries over the first rows of each stream."""

    def __init__(self, acked: Mapping[str, int]) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        for name, count in acked.items():
            # Timestamps without a zone, as all of the SQL has them.
            made = rows(name, 0, count)
            made = made.set_column(0, "ts", made["ts"].cast(pa.timestamp("us")))
            self._connection.register(f"{name}_", made)
        self._connection.register("names", pa.Table.from_pylist(TABLE_ROWS))

    def answers(self, query: ChaosQuery) -> list[tuple[Any, ...]]:
        """Return the answers of a query, in no order."""
        found: list[tuple[Any, ...]] = self._connection.execute(query.sql).fetchall()
        return found

    def close(self) -> None:
        """Close the database."""
        self._connection.close()
