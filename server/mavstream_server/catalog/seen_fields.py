"""Which fields of what it reads a query sees: those that there were when it was registered."""

from __future__ import annotations

import json
from collections.abc import Mapping

from mavstream_server.catalog.database import Database

Seen = int | tuple[str, ...]
"""How many fields of a stream, which only gets more, or the names of columns of another query's results."""


class SeenFields:
    """The stored fields, by query and by the name of what it reads.

    A query without an entry sees all fields. Those of a replacement, which is begun and not yet complete, are
    stored beside those of the query.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, query: str, *, replacement: bool = False) -> dict[str, Seen]:
        """Return what a query, or what is to replace it, sees of streams and results that got more since."""
        rows = self._database.run(
            "SELECT stream, fields, names FROM seen_fields WHERE query = ? AND replacement = ?",
            *(query, replacement),
        )
        return {name: fields if names is None else tuple(json.loads(names)) for name, fields, names in rows}

    def limit(self, stream: str, fields: int) -> None:
        """Let the queries that there are see no more than the fields that a stream has now."""
        # A query that contains these characters and does not read the stream loses nothing by it.
        self._database.run(
            "INSERT OR IGNORE INTO seen_fields SELECT id, 0, ?1, ?2, NULL FROM queries WHERE instr(spec, ?3)",
            *(stream, fields, f'"stream":"{stream}"'),
        )

    def keep_columns(self, query: str, name: str, columns: tuple[str, ...]) -> None:
        """Let a query see no more than these columns of the results of another one, if it saw all so far."""
        self._database.run(
            "INSERT OR IGNORE INTO seen_fields VALUES (?, 0, ?, 0, ?)", query, name, json.dumps(columns)
        )

    def begin_replacement(self, query: str, seen: Mapping[str, Seen]) -> None:
        """Store which fields the specification sees that is to replace that of a query."""
        self.drop_replacement(query)
        self._database.run_many(
            "INSERT INTO seen_fields VALUES (?, 1, ?, ?, ?)",
            [
                (query, name, one, None) if isinstance(one, int) else (query, name, 0, json.dumps(one))
                for name, one in seen.items()
            ],
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

    def remove_results(self, query: str) -> None:
        """Forget the results of a query that is removed: another one of its name has other columns."""
        name = "SELECT CASE WHEN json_valid(spec) THEN json_extract(spec, '$.name') END FROM queries"
        self._database.run(f"DELETE FROM seen_fields WHERE stream = ({name} WHERE id = ?)", query)
