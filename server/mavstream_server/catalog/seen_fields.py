"""How many fields of its streams a query sees: those that they had when it was registered."""

from __future__ import annotations

from collections.abc import Mapping

from mavstream_server.catalog.database import Database


class SeenFields:
    """The stored numbers of fields, by query and stream.

    A query without a number sees all fields. Those of a replacement, which is begun and not yet complete, are
    stored beside those of the query.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, query: str, *, replacement: bool = False) -> dict[str, int]:
        """Return how many fields a query, or what is to replace it, sees of streams that got more since."""
        rows = self._database.run(
            "SELECT stream, fields FROM seen_fields WHERE query = ? AND replacement = ?", query, replacement
        )
        return dict(rows.fetchall())

    def limit(self, stream: str, fields: int) -> None:
        """Let the queries that there are see no more than the fields that a stream has now."""
        # A query that contains these characters and does not read the stream loses nothing by it.
        self._database.run(
            "INSERT OR IGNORE INTO seen_fields SELECT id, 0, ?1, ?2 FROM queries WHERE instr(spec, ?3)",
            *(stream, fields, f'"stream":"{stream}"'),
        )

    def begin_replacement(self, query: str, seen: Mapping[str, int]) -> None:
        """Store how many fields the specification sees that is to replace that of a query."""
        self.drop_replacement(query)
        self._database.run_many(
            "INSERT INTO seen_fields VALUES (?, 1, ?, ?)",
            [(query, stream, fields) for stream, fields in seen.items()],
        )

    def complete_replacement(self, query: str) -> None:
        """Let a query see what its replacement saw."""
        self._database.run("DELETE FROM seen_fields WHERE query = ? AND NOT replacement", query)
        self._database.run("UPDATE seen_fields SET replacement = 0 WHERE query = ?", query)

    def drop_replacement(self, query: str) -> None:
        """Forget a replacement that was given up."""
        self._database.run("DELETE FROM seen_fields WHERE query = ? AND replacement", query)

    def remove_query(self, query: str) -> None:
        """Forget a query that is removed."""
        self._database.run("DELETE FROM seen_fields WHERE query = ?", query)

    def remove_stream(self, stream: str) -> None:
        """Forget a stream that is removed: another one of its name has other fields."""
        self._database.run("DELETE FROM seen_fields WHERE stream = ?", stream)
