"""Importance of streams and queries: which work of a process goes first."""

from __future__ import annotations

from typing import Protocol


class Importance(Protocol):
    """How important streams and queries are; larger numbers are more important.

    A query is as important as the priority of its class, or as the most important query that reads its
    results; a stream as the most important query that reads it. Through others, too.
    """

    @property
    def version(self) -> int:
        """A number that grows whenever an importance changes, for those who cache what follows from it."""

    @property
    def highest(self) -> int:
        """The importance of the most important query; 0 without queries."""

    def of_stream(self, stream: str) -> int:
        """Return the importance of a stream; 0 if no query reads it."""

    def of_query(self, id_: str) -> int:
        """Return the importance of a query; 0 if it does not run."""


class AllEqual:
    """The importance of streams and queries if there are no classes: all are equal."""

    version = 0
    highest = 0

    def of_stream(self, stream: str) -> int:
        """Return 0."""
        return 0

    def of_query(self, id_: str) -> int:
        """Return 0."""
        return 0
