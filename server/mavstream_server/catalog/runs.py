"""Runs: from where queries go on that other engines run, as published with their last batch of results."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from mavstream_server.catalog.database import Database


class RunRecord(BaseModel):
    """The state of a run behind one batch of results."""

    model_config = ConfigDict(frozen=True)
    batch: int
    end: int
    """Offset of the result behind the batch: if the log is shorter, the batch was not published."""
    state: dict[str, Any]
    needs: dict[str, int]
    """By stream, the lowest position that later batches read."""
    ends: bool = False
    """Whether the batch is the last one."""


class StoredRun(NamedTuple):
    """The last two records of a run: the last one may not have been published."""

    last: RunRecord
    before: RunRecord | None

    def published(self, end: int) -> RunRecord:
        """Return the last record whose batch is in a result log that ends at this offset."""
        return self.last if self.before is None or self.last.end <= end else self.before


class Runs:
    """The stored runs, by query."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, query: str) -> StoredRun | None:
        """Return the run of a query; None if it has none."""
        row = self._database.run("SELECT last, before FROM runs WHERE query = ?", query).fetchone()
        if row is None:
            return None
        last, before = (None if text is None else RunRecord.model_validate_json(text) for text in row)
        assert last is not None
        return StoredRun(last, before)

    def put(self, query: str, last: RunRecord, before: RunRecord | None) -> None:
        """Store the record of a batch that is about to be published, and of the one before it."""
        texts = (None if record is None else record.model_dump_json() for record in (last, before))
        self._database.run("INSERT OR REPLACE INTO runs VALUES (?, ?, ?)", query, *texts)

    def remove(self, query: str) -> None:
        """Remove the run of a query; does nothing without one."""
        self._database.run("DELETE FROM runs WHERE query = ?", query)
