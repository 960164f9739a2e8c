"""Results: the answers of all queries, for subscribers and pulls."""

from __future__ import annotations

import shutil
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pyarrow as pa

from mavstream_protocol.schema import Schema
from mavstream_protocol.tuples import encode_rows, encode_stream
from mavstream_server.core.errors import TooMany
from mavstream_server.log import GapError
from mavstream_server.results.query_results import (
    AnsweringQuery,
    ChunkCache,
    OffsetAhead,
    QueryResults,
    ResultCounters,
)

__all__ = ["AnsweringQuery", "OffsetAhead", "Pulled", "QueryResults", "ResultService", "TooManySubscribers"]

DEFAULT_PULL = 1_000
MOST_PULLED = 10_000
_PULL_BYTES = 16 << 20
_IDLE_FEEDS = 64


class TooManySubscribers(TooMany):
    """More subscriptions than the server takes."""

    code = "too_many_subscribers"
    title = "The server has all the subscribers that it takes"


@dataclass(slots=True)
class Pulled:
    """A part of a query's answers, all of one epoch."""

    schema: Schema
    batches: list[pa.RecordBatch]
    next: int
    """The offset of the last row so far, -1 if there is none: the `after` of the following part."""
    epoch: int
    gap: tuple[int, int] | None

    def json(self) -> bytes:
        """Return the JSON form of `PulledResults`."""
        rows = b",".join(encode_rows(batch)[1:-1] for batch in self.batches)
        tail = orjson.dumps({"next": self.next, "epoch": self.epoch, "gap": self.gap})
        return b'{"rows":[' + rows + b"]," + tail[1:]

    def arrow(self) -> bytes:
        """Return the rows as an Arrow IPC stream."""
        return encode_stream(self.schema, self.batches)


@dataclass(slots=True)
class ResultService:
    """The answers of all queries, for subscribers and pulls. Lives in one event loop."""

    directory: Path
    """Where the result logs are, a directory per query."""
    max_subscribers: int = 1000
    counters: ResultCounters = field(default_factory=ResultCounters)
    cache: ChunkCache = field(default_factory=ChunkCache)
    subscribers: int = 0
    _feeds: OrderedDict[str, QueryResults] = field(default_factory=OrderedDict)
    _watched: dict[str, QueryResults] = field(default_factory=dict)

    def feed(self, query: AnsweringQuery) -> QueryResults:
        """Return the feed of a query, made on first use."""
        feed = self._feeds.get(query.id)
        if feed is None:
            feed = self._feeds[query.id] = QueryResults(
                query, self.directory / query.id, self.cache, self.counters
            )
            self._trim()
        else:
            self._feeds.move_to_end(query.id)
        return feed

    def enter(self, feed: QueryResults) -> None:
        """Count a subscriber in; raises TooManySubscribers."""
        if self.subscribers >= self.max_subscribers:
            raise TooManySubscribers(
                f"{self.subscribers} subscriptions are open, which is the limit: close some, or pull instead"
            )
        self.subscribers += 1
        feed.subscribers += 1
        self._watched[feed.query.id] = feed

    def leave(self, feed: QueryResults) -> None:
        """Count a subscriber out."""
        self.subscribers -= 1
        feed.subscribers -= 1
        if not feed.subscribers:
            self._watched.pop(feed.query.id, None)
            self._trim()

    def subscribers_of(self, id_: str) -> int:
        """Return how many subscribe to a query."""
        feed = self._watched.get(id_)
        return 0 if feed is None else feed.subscribers

    def doorbell(self) -> None:
        """The engine has appended results somewhere: look at the logs that somebody waits for."""
        for feed in self._watched.values():
            feed.look()

    def changed(self, id_: str) -> None:
        """A query has another epoch or has ended: those who wait for it look again."""
        feed = self._feeds.get(id_)
        if feed is not None:
            feed.wake()

    def pull(self, query: AnsweringQuery, after: int | None = None, limit: int = DEFAULT_PULL) -> Pulled:
        """Return answers behind an offset, of one epoch, at most `limit` of them and some 16 MiB.

        Without `after` the oldest that are kept come first. Raises OffsetAhead.
        """
        feed = self.feed(query)
        position = feed.position_after(after)
        batches: list[pa.RecordBatch] = []
        gap: tuple[int, int] | None = None
        epoch, room, left = query.epoch, _PULL_BYTES, min(max(limit, 1), MOST_PULLED)
        while left > 0 and room > 0:
            try:
                portion = feed.read(position, left)
            except GapError as missing:
                if batches:
                    break  # told with the next pull
                gap = (missing.start if gap is None else gap[0], missing.stop)
                position = missing.stop
                self.count_gap(missing.stop - missing.start)
                continue
            if portion is None or (batches and portion.epoch != epoch):
                break
            batches.append(portion.batch)
            position, epoch = portion.stop, portion.epoch
            left -= portion.stop - portion.start
            room -= portion.batch.nbytes
        self.counters.rows += sum(batch.num_rows for batch in batches)
        return Pulled(query.schema, batches, position - 1, epoch, gap)

    def count_gap(self, rows: int) -> None:
        """Count a gap that a reader is told of."""
        self.counters.gaps += 1
        self.counters.missed += rows

    def remove(self, id_: str) -> None:
        """Delete the answers of a query that is gone; its subscribers are told that it is closed."""
        feed = self._feeds.pop(id_, None)
        if feed is not None:
            feed.removed = True
            feed.wake()
        shutil.rmtree(self.directory / id_, ignore_errors=True)

    def _trim(self) -> None:
        """Let go of the logs that nobody has asked for lately; each holds an open file."""
        idle = len(self._feeds) - len(self._watched)
        for id_ in list(self._feeds) if idle > _IDLE_FEEDS else ():
            if id_ not in self._watched:
                del self._feeds[id_]
                return
