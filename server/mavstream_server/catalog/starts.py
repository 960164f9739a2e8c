"""Starts: whether queries have begun in an engine, and from where paused ones are to go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import orjson

from mavstream_server.catalog.database import Database


class QueryStart(NamedTuple):
    """How a query is to be started."""

    begun: bool = False
    """Whether an engine has run it: without a checkpoint it then goes on with new rows only."""
    resumes: Mapping[str, int] | None = None
    """Where it goes on after its last pause, by stream; None if it was never resumed."""


class QueryStarts:
    """The stored starts, by query."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, query: str) -> QueryStart:
        """Return how a query is to be started."""
        row = self._database.run("SELECT begun, resumes FROM starts WHERE query = ?", query).fetchone()
        if row is None:
            return QueryStart()
        begun, resumes = row
        return QueryStart(bool(begun), None if resumes is None else orjson.loads(resumes))

    def note_begun(self, query: str) -> None:
        """Note that an engine runs a query."""
        self._database.run(
            "INSERT INTO starts VALUES (?, 1, NULL) ON CONFLICT DO UPDATE SET begun = 1", query
        )

    def resume(self, query: str, positions: Mapping[str, int]) -> None:
        """Store from where a query goes on that was paused."""
        text = orjson.dumps(dict(positions)).decode()
        self._database.run(
            "INSERT INTO starts VALUES (?, 0, ?) ON CONFLICT DO UPDATE SET resumes = excluded.resumes",
            *(query, text),
        )

    def remove(self, query: str) -> None:
        """Remove what is stored of a query; does nothing without any."""
        self._database.run("DELETE FROM starts WHERE query = ?", query)
