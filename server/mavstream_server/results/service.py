"""The result service: results of all queries, for subscribers and pulls."""

from __future__ import annotations

import shutil
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import orjson
import pyarrow as pa

from mavstream_protocol.schema import Schema
from mavstream_protocol.tuples import encode_rows, encode_stream
from mavstream_server.core.errors import TooMany
from mavstream_server.core.event_loop.background import Background
from mavstream_server.core.event_loop.work_queue import WorkQueue, in_turn
from mavstream_server.core.importance import AllEqual, Importance
from mavstream_server.core.storage.damage import DamageReport
from mavstream_server.log import GapCause, GapError
from mavstream_server.results.query_results import (
    AnsweringQuery,
    ChunkCache,
    OffsetAhead,
    QueryResults,
    ResultCounters,
)
from mavstream_server.results.row_metadata import with_metadata

__all__ = ["AnsweringQuery", "OffsetAhead", "Pulled", "QueryResults", "ResultService", "TooManySubscribers"]

T = TypeVar("T")

DEFAULT_PULL = 1_000
MOST_PULLED = 10_000
_PULL_BYTES = 16 << 20
_IDLE_LOGS = 64


class TooManySubscribers(TooMany):
    """The limit on open subscriptions is reached."""

    code = "too_many_subscribers"
    title = "Too many subscribers"


@dataclass(slots=True)
class Pulled:
    """A page of a query's results, all of one epoch and one plan."""

    schema: Schema
    batches: list[pa.RecordBatch]
    next: int
    """The offset of the last row, -1 if there is none: the `after` of the next page."""
    epoch: int
    revision: int
    end: int
    """The offset of the next result, when the page was asked for."""
    complete: bool
    """Whether the query has ended: no results will follow `end`."""
    gap: tuple[int, int] | None
    gap_reason: GapCause | None = None

    def json(self) -> bytes:
        """Return the JSON form of `PulledResults`."""
        rows = b",".join(encode_rows(batch)[1:-1] for batch in self.batches)
        tail = orjson.dumps(self._tail())
        return b'{"rows":[' + rows + b"]," + tail[1:]

    def _tail(self) -> dict[str, object]:
        return {
            "next": self.next,
            "epoch": self.epoch,
            "revision": self.revision,
            "end": self.end,
            "complete": self.complete,
            "gap": self.gap,
            "gap_reason": self.gap_reason,
        }

    def arrow(self) -> bytes:
        """Return the rows as an Arrow IPC stream."""
        return encode_stream(self.schema, self.batches)


@dataclass(slots=True)
class ResultService:
    """The results of all queries, for subscribers and pulls. Lives in one event loop."""

    directory: Path
    """The directory of the result logs, with a directory per query."""
    max_subscribers: int = 1000
    counters: ResultCounters = field(default_factory=ResultCounters)
    cache: ChunkCache = field(default_factory=ChunkCache)
    importance: Importance = field(default_factory=AllEqual)
    work: WorkQueue | None = None
    """Where the results of less important queries wait for their turn; None: they do not wait."""
    damage: DamageReport = field(default_factory=DamageReport)
    """Collects the damage that readers find."""
    background: Background | None = None
    """Syncs result logs, so that readers get what is on disk; None: they get results at once."""
    subscribers: int = 0
    _open: OrderedDict[str, QueryResults] = field(default_factory=OrderedDict)
    _watched: dict[str, QueryResults] = field(default_factory=dict)
    _ordered: list[QueryResults] | None = None
    _ordered_version: int = 0

    def of(self, query: AnsweringQuery) -> QueryResults:
        """Return the results of a query, opened on first use."""
        results = self._open.get(query.id)
        if results is None:
            results = self._open[query.id] = QueryResults(
                query, self.directory / query.id, self.cache, self.counters, self.damage.add, self.background
            )
            self._trim()
        else:
            self._open.move_to_end(query.id)
        return results

    def subscribe(self, results: QueryResults) -> None:
        """Count a new subscriber; raises TooManySubscribers."""
        if self.subscribers >= self.max_subscribers:
            raise TooManySubscribers(
                f"{self.subscribers} subscriptions are open, which is the limit: close some, or pull instead"
            )
        self.subscribers += 1
        results.subscribers += 1
        self._watched[results.query.id] = results
        self._ordered = None

    def unsubscribe(self, results: QueryResults) -> None:
        """Count a subscriber that has left."""
        self.subscribers -= 1
        results.subscribers -= 1
        if not results.subscribers:
            self._watched.pop(results.query.id, None)
            self._ordered = None
            self._trim()

    def subscribers_of(self, id_: str) -> int:
        """Return the number of subscribers of a query."""
        results = self._watched.get(id_)
        return 0 if results is None else results.subscribers

    def doorbell(self) -> None:
        """Wake the readers of subscribed logs with new rows, those of important queries first."""
        for results in self._by_importance():
            if results.look() and self.work is not None:
                self.work.announce(self.importance.of_query(results.query.id))

    async def in_turn(self, results: QueryResults, work: Callable[[], T]) -> T:
        """Do work for a subscriber of a query when it is the query's turn, and return its result."""
        if self.work is None:
            return work()
        return await in_turn(self.work, self.importance.of_query(results.query.id), work)

    def _by_importance(self) -> list[QueryResults]:
        if self._ordered is None or self._ordered_version != self.importance.version:
            self._ordered_version = self.importance.version
            of_query = self.importance.of_query
            self._ordered = sorted(self._watched.values(), key=lambda results: -of_query(results.query.id))
        return self._ordered

    def changed(self, id_: str) -> None:
        """Wake the readers of a query that has a new epoch or has ended."""
        results = self._open.get(id_)
        if results is not None:
            results.wake()

    async def pull_synced(
        self,
        query: AnsweringQuery,
        after: int | None = None,
        limit: int = DEFAULT_PULL,
        *,
        metadata: bool = False,
    ) -> Pulled:
        """Return results as `pull` does, after waiting until the disk has those that it has to have."""
        await self.of(query).settle()
        return self.pull(query, after, limit, metadata=metadata)

    def pull(
        self,
        query: AnsweringQuery,
        after: int | None = None,
        limit: int = DEFAULT_PULL,
        *,
        metadata: bool = False,
    ) -> Pulled:
        """Return results behind an offset, of one epoch, at most `limit` rows and about 16 MiB.

        Without `after` it starts with the oldest retained result. With `metadata` rows have it as columns.
        Raises OffsetAhead, Conflict.
        """
        results, metadata_of = self.of(query), f"query '{query.id}'" if metadata else None
        # Before the end is looked up: what a query has answered when it ended, does not grow.
        complete = query.final is not None
        position = results.position_after(after)
        batches: list[pa.RecordBatch] = []
        gap: tuple[int, int] | None = None
        cause: GapCause | None = None
        origin, room, left = results.origin, _PULL_BYTES, min(limit, MOST_PULLED)
        schema = origin.schema if metadata_of is None else with_metadata(origin.schema, metadata_of)
        while left > 0 and room > 0:
            try:
                chunk = results.read(position, left, metadata_of=metadata_of)
            except GapError as missing:
                if batches:
                    break  # reported by the next pull
                gap = (missing.start if gap is None else gap[0], missing.stop)
                position = missing.stop
                cause = missing.cause if cause is not GapCause.DAMAGE else cause
                self.count_gap(missing.stop - missing.start)
                continue
            if chunk is None or (batches and chunk.origin != origin):
                break
            batches.append(chunk.batch)
            position, origin, schema = chunk.stop, chunk.origin, chunk.schema
            left -= chunk.stop - chunk.start
            room -= chunk.batch.nbytes
        self.counters.rows += sum(batch.num_rows for batch in batches)
        end = results.readable_end
        epoch, revision, _ = origin
        return Pulled(schema, batches, position - 1, epoch, revision, end, complete, gap, cause)

    def count_gap(self, rows: int) -> None:
        """Count a gap that is reported to a reader."""
        self.counters.gaps += 1
        self.counters.missed += rows

    def remove(self, id_: str) -> None:
        """Delete the results of a removed query; its subscriptions end."""
        results = self._open.pop(id_, None)
        if results is not None:
            results.removed = True
            results.wake()
            results.close()
        shutil.rmtree(self.directory / id_, ignore_errors=True)

    def _trim(self) -> None:
        """Close a result log that was not used lately; each has an open file."""
        idle = len(self._open) - len(self._watched)
        for id_ in list(self._open) if idle > _IDLE_LOGS else ():
            if id_ not in self._watched:
                del self._open[id_]
                return
