"""Events that an engine process sends to the API process; they have no number and get no reply."""

from __future__ import annotations

from dataclasses import dataclass

from mavstream_server.core.storage.damage import Damage


@dataclass(frozen=True, slots=True)
class Ready:
    """The process has started and expects Hello."""

    pid: int


@dataclass(frozen=True, slots=True)
class QueryEnded:
    """A query has finished or failed; sent once, when all its results are in its log."""

    id: str
    state: str
    """`finished` or `failed`."""
    reason: str | None


@dataclass(frozen=True, slots=True)
class Need:
    """The position from which a stream's log must be retained."""

    position: int
    """The lowest position that a query still needs."""
    query: str
    """The id of that query."""
    furthest: int
    """The highest position that a query has read up to."""


@dataclass(frozen=True, slots=True)
class Positions:
    """The positions from which logs must be retained, by stream; sent when they change."""

    needs: dict[str, Need]
    """Streams without readers are left out."""


@dataclass(frozen=True, slots=True)
class DamageFound:
    """A file that the engine reads or writes is damaged; sent once for each damage."""

    damage: Damage


@dataclass(frozen=True, slots=True)
class QueryDiverged:
    """A query that was recovered from a checkpoint did not repeat all results that are in its log."""

    id: str
    rows: int
    """Stored results that were not computed again."""


Event = Ready | QueryEnded | Positions | DamageFound | QueryDiverged
