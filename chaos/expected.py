"""Expected answers: DuckDB over the rows that were acked."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

from chaos.workload import STREAMS, Acked, ChaosQuery, rows


class Expected:
    """The answers of queries over the first rows of each stream."""

    def __init__(self, acked: Acked) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        for name in STREAMS:
            made = pa.concat_tables(rows(part, 0, acked[part]) for part in acked if part.stream == name)
            # Timestamps without a zone, as all of the SQL has them.
            made = made.set_column(0, "ts", made["ts"].cast(pa.timestamp("us")))
            self._connection.register(f"{name}_", made)

    def answers(self, query: ChaosQuery) -> list[tuple[Any, ...]]:
        """Return the answers of a query, in no order."""
        found: list[tuple[Any, ...]] = self._connection.execute(query.sql).fetchall()
        return found

    def close(self) -> None:
        """Close the database."""
        self._connection.close()
