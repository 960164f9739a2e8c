"""Records of appends with an idempotency key: what was sent, and where it is in the log."""

from __future__ import annotations

from typing import NamedTuple

from mavstream_server.catalog.database import Database


class KeyedAppend(NamedTuple):
    """An append with an idempotency key."""

    stream: str
    key: str
    fingerprint: str
    """Hash of the body and its type."""
    stamp: int
    """Identifies the frame in the log, where it is stored as its sequence."""
    begun: int
    """Position of the end of the log before the append."""
    rows: int
    position: int | None
    """Position of the first row; None if the outcome is not known yet."""
    at_us: int


class AppendRecords:
    """The stored records. They are written before the rows, and completed after them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.count: int = database.run("SELECT count(*) FROM appends").fetchone()[0]
        """How many records there are."""

    def find(self, stream: str, key: str) -> KeyedAppend | None:
        """Return the append with a key, or None."""
        row = self._database.run("SELECT * FROM appends WHERE stream = ? AND key = ?", stream, key).fetchone()
        return None if row is None else KeyedAppend(*row)

    def add(self, record: KeyedAppend) -> None:
        """Store an append that begins."""
        self._database.run("INSERT INTO appends VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *record)
        self.count += 1

    def complete(self, record: KeyedAppend, position: int) -> None:
        """Store where the rows are."""
        self._database.run(
            "UPDATE appends SET position = ? WHERE stream = ? AND key = ?",
            position,
            record.stream,
            record.key,
        )

    def remove(self, record: KeyedAppend) -> None:
        """Remove an append whose rows are not in the log."""
        self._removed("DELETE FROM appends WHERE stream = ? AND key = ?", record.stream, record.key)

    def remove_before(self, at_us: int) -> None:
        """Remove the records of appends before a time."""
        self._removed("DELETE FROM appends WHERE at_us < ?", at_us)

    def remove_stream(self, stream: str) -> None:
        """Remove the records of a stream that is removed."""
        self._removed("DELETE FROM appends WHERE stream = ?", stream)

    def unknown(self) -> list[KeyedAppend]:
        """Return the appends whose outcome is not known."""
        rows = self._database.run("SELECT * FROM appends WHERE position IS NULL")
        return [KeyedAppend(*row) for row in rows.fetchall()]

    def _removed(self, sql: str, *values: object) -> None:
        self.count -= self._database.run(sql, *values).rowcount
