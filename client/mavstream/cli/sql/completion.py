"""Completion: the words of SQL, and the names of what the server has."""

from __future__ import annotations

from threading import Thread

from mavstream._client import Client
from mavstream_protocol import MavstreamError

WORDS = (
    *("SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "DISTINCT", "AS", "WITH", "UNION ALL", "EXCEPT"),
    *("JOIN", "LEFT JOIN", "LEFT ANTI JOIN", "ON", "USING", "BETWEEN", "AND", "OR", "NOT", "IN", "LIKE"),
    *("ILIKE", "IS NULL", "IS NOT NULL", "IS NOT DISTINCT FROM", "CASE", "WHEN", "THEN", "ELSE", "END"),
    *("CAST", "EXTRACT", "INTERVAL", "TIMESTAMP", "NULL", "TRUE", "FALSE", "SECOND", "MINUTE", "HOUR"),
    *("MILLISECOND", "DAY", "TUMBLE", "HOP", "ROWS", "window_start", "window_end", "row_time"),
    *("count", "sum", "avg", "min", "max", "stddev", "median", "first", "last", "date_trunc"),
    *("CREATE STREAM", "CREATE QUERY", "CREATE CLASS", "CREATE TABLE", "CREATE OR REPLACE", "WATERMARK FOR"),
    *("PRIORITY", "INSERT INTO", "VALUES", "SHOW STREAMS", "SHOW TABLES", "SHOW QUERIES", "SHOW CLASSES"),
    *("DESCRIBE", "EXPLAIN", "DROP STREAM", "DROP TABLE", "DROP QUERY", "PAUSE QUERY", "RESUME QUERY"),
    *("SET SCHEDULER", "retention", "latency_p95", "memory", "max_loss", "class", "mode", "int", "float"),
    *("string", "bool", "timestamp"),
)
_QUERIES = 200
"""The most names of queries that are offered."""


class Names:
    """The names of streams, columns, tables, queries and classes; refreshed in the background."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._names: list[str] = []

    def refresh(self) -> None:
        """Begin to fetch the names; those of before are offered until they are there."""
        Thread(target=self._fetch, daemon=True).start()

    def words(self) -> list[str]:
        """Return all that can be offered."""
        return [*self._names, *WORDS]

    def _fetch(self) -> None:
        client, found = self._client, dict[str, None]()
        try:
            for stream in client.streams():
                found |= dict.fromkeys((stream.name, *(field.name for field in stream.spec.fields)))
            for table in client.tables():
                found |= dict.fromkeys((table.name, *(field.name for field in table.fields)))
            found |= dict.fromkeys(one.name for one in client.classes())
            found |= dict.fromkeys(one.spec.name for one in client.queries()[:_QUERIES])
        except MavstreamError:
            return  # without names: the next statement tells what is wrong
        self._names = list(found)
