"""Records of the checkpoints on disk: what of the logs they need, and their metrics."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from mavstream_server.core.metrics import CheckpointMetrics
from mavstream_server.engine.checkpoints.cut import Cut
from mavstream_server.engine.checkpoints.store import KEPT
from mavstream_server.engine.checkpoints.writing import Written
from mavstream_server.engine.engine import Engine


class Kept(NamedTuple):
    """A checkpoint on disk, and what it needs."""

    number: int
    positions: Mapping[str, int]
    offset: int
    oldest_arrival: int | None


@dataclass(slots=True)
class CheckpointRecord:
    """The checkpoints of one query."""

    number: int = 0
    """Of the last checkpoint that was begun."""
    kept: list[Kept] = field(default_factory=list)
    """On disk, oldest first."""
    progress: str | None = None
    """The progress at the last checkpoint: another one is due when it has changed."""
    taken_us: int = 0
    nbytes: int = 0
    duration_ns: int | None = None
    error: str | None = None
    failures: int = 0
    plans: dict[int, str] = field(default_factory=dict)
    """The plans that the query was migrated to, as JSON, by version."""
    catch_up: dict[str, int] | None = None
    """The ends of its streams at its recovery; None once replay is complete."""
    marks: dict[str, int] = field(default_factory=dict)
    """The watermarks up to which it reads the results of others until then, by source."""
    replayed: int = 0
    """Results that were computed again at the last recovery."""

    def due(self, at: Cut) -> bool:
        """Whether a query that is there needs another checkpoint."""
        # Once more after the last change: the older checkpoint would hold rows of an idle stream.
        differ = bool(self.kept) and self.kept[0].positions != self.kept[-1].positions
        return differ or len(self.kept) < KEPT or self.progress != at.progress

    def written(self, at: Cut, written: Written) -> None:
        """Record a checkpoint that is on disk."""
        self.error, self.progress = None, at.progress
        self.kept.append(Kept(written.number, at.positions, at.offset, at.oldest_arrival))
        del self.kept[:-KEPT]
        self.taken_us = (time.time_ns() - written.duration_ns) // 1000
        self.nbytes, self.duration_ns = written.nbytes, written.duration_ns

    def fail(self, reason: str) -> None:
        """Record that a checkpoint could not be written; another one is due."""
        self.error, self.progress, self.failures = reason, None, self.failures + 1


class CheckpointRecords(dict[str, CheckpointRecord]):
    """The records of all queries that have checkpoints, by id."""

    def held_offset(self, id_: str) -> int | None:
        """Return the offset from which a result log must be retained; None if there is no checkpoint."""
        record = self.get(id_)
        return None if record is None or not record.kept else record.kept[0].offset

    def positions(self, id_: str) -> Mapping[str, int]:
        """Return the positions from which the oldest kept checkpoint of a query continues, by stream."""
        record = self.get(id_)
        return {} if record is None or not record.kept else record.kept[0].positions

    def held_positions(self) -> dict[str, tuple[int, str]]:
        """Return the lowest position that the kept checkpoints need, and the query it is for, by stream."""
        lowest: dict[str, tuple[int, str]] = {}
        for id_, record in self.items():
            for kept in record.kept[:1]:
                for stream, position in kept.positions.items():
                    if stream not in lowest or position < lowest[stream][0]:
                        lowest[stream] = position, id_
        return lowest

    def oldest_arrival(self, ids: Collection[str]) -> int | None:
        """Return the lowest arrival time (ns) of the rows in the kept checkpoints of queries."""
        found = [
            kept.oldest_arrival
            for id_ in ids
            if (record := self.get(id_)) is not None
            for kept in record.kept
            if kept.oldest_arrival is not None
        ]
        return min(found, default=None)

    def metrics(self, id_: str, engine: Engine) -> CheckpointMetrics | None:
        """Return the metrics of a query's last checkpoint; None if it has none."""
        record, query = self.get(id_), engine.queries.get(id_)
        if record is None or query is None:
            return None
        if query.output.replayed_rows:
            record.replayed = query.output.replayed_rows
        return CheckpointMetrics(
            record.taken_us if record.kept else None,
            record.nbytes,
            None if record.duration_ns is None else record.duration_ns // 1000,
            record.replayed,
            query.output.replay is not None,
            record.error,
            record.failures,
        )
