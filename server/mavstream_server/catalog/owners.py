"""Owners of streams, queries and producers: the name of the token that created each."""

from __future__ import annotations

from typing import Literal

from mavstream_server.catalog.database import Database

Kind = Literal["stream", "query", "producer"]


class Owners:
    """The stored owners. Objects of servers without tokens, and of earlier releases, have none."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def set(self, kind: Kind, name: str, owner: str | None) -> None:
        """Store the owner of a new object; none if it was created without a token."""
        self.remove(kind, name)
        if owner is not None:
            self._database.run("INSERT INTO owners VALUES (?, ?, ?)", kind, name, owner)

    def of(self, kind: Kind, name: str) -> str | None:
        """Return the owner of an object, or None if it belongs to all."""
        row = self._database.run(
            "SELECT owner FROM owners WHERE kind = ? AND name = ?", kind, name
        ).fetchone()
        return None if row is None else row[0]

    def all(self, kind: Kind) -> dict[str, str]:
        """Return the owners of all objects of a kind that have one."""
        return dict(self._database.run("SELECT name, owner FROM owners WHERE kind = ?", kind).fetchall())

    def remove(self, kind: Kind, name: str) -> None:
        """Remove the owner of an object that is removed."""
        self._database.run("DELETE FROM owners WHERE kind = ? AND name = ?", kind, name)
