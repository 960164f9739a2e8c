"""The results of one query: its result log, its readers' cursors, and the encodings they share."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mavstream_protocol.schema import Schema
from mavstream_protocol.wire.resources import ActualState
from mavstream_protocol.wire.seams import NotRetained
from mavstream_server.core.errors import ServiceError
from mavstream_server.core.event_loop.background import Background
from mavstream_server.core.storage.damage import DamageListener, log_damage
from mavstream_server.log import Cursor, LogMissingError, LogReader
from mavstream_server.results.encoding import (
    CHUNK_ROWS,
    Origin,
    ResultChunk,
    ResultFormat,
    encode_chunk,
    origin_of_row,
    read_chunk,
)
from mavstream_server.results.group_commit import SyncedEnd

# Frames are decoded once per encoding, so the reader's own cache may be small.
_READER_BYTES = 256 << 10
# Each lagging subscriber needs a cursor of its own; those that keep up share one.
_CURSORS = 8


class AnsweringQuery(Protocol):
    """What the results must know of their query; the query service keeps it up to date."""

    @property
    def id(self) -> str:
        """The id of the query."""

    @property
    def schema(self) -> Schema:
        """The schema of its results."""

    @property
    def epoch(self) -> int:
        """The epoch of the results to come."""

    @property
    def revision(self) -> int:
        """How often its plan was replaced before the results to come."""

    def not_retained(self, revision: int) -> tuple[NotRetained, ...] | None:
        """Return the rows that the plan of a revision lacked; None while that is not known yet."""

    @property
    def final(self) -> ActualState | None:
        """The state in which the query ended, or None."""

    @property
    def reason(self) -> str | None:
        """Why it ended in this state."""


class OffsetAhead(ServiceError):
    """The requested offset is behind the last result."""

    code = "offset_ahead"
    title = "The query has fewer results"
    status = 422


@dataclass(slots=True)
class ResultCounters:
    """Counters of delivered results since the server started."""

    encodings: int = 0
    """Chunks encoded; a chunk that subscribers share counts once."""
    messages: int = 0
    rows: int = 0
    """Rows delivered to subscribers and pulls."""
    gaps: int = 0
    """Gaps reported to subscribers and pulls."""
    missed: int = 0
    """Rows in these gaps."""
    disconnected: int = 0
    """Subscribers that fell behind and were disconnected, as they had asked."""


class EncodedChunk:
    """A chunk encoded as a message, ready to be sent to any number of subscribers."""

    __slots__ = ("message", "origin", "start", "stop")

    def __init__(self, chunk: ResultChunk, format_: ResultFormat) -> None:
        self.start, self.stop, self.origin, *_ = chunk
        self.message = encode_chunk(chunk, format_)


class ChunkCache:
    """A least-recently-used cache of the encoded chunks of all queries, bounded in bytes."""

    def __init__(self, room: int = 32 << 20) -> None:
        self._room = room
        self._kept: OrderedDict[tuple[str, int, ResultFormat], EncodedChunk] = OrderedDict()

    def get(self, key: tuple[str, int, ResultFormat]) -> EncodedChunk | None:
        """Return the chunk under a key, or None."""
        known = self._kept.get(key)
        if known is not None:
            self._kept.move_to_end(key)
        return known

    def add(self, key: tuple[str, int, ResultFormat], encoded: EncodedChunk) -> None:
        """Add a chunk under a new key and evict others to make space."""
        self._kept[key] = encoded
        self._room -= len(encoded.message)
        while self._room < 0 and len(self._kept) > 1:
            self._room += len(self._kept.popitem(last=False)[1].message)


class QueryResults:
    """The results of one query: its log, cursors of its readers, and an event for those who wait."""

    def __init__(
        self,
        query: AnsweringQuery,
        path: Path,
        cache: ChunkCache,
        counters: ResultCounters,
        on_damage: DamageListener = log_damage,
        background: Background | None = None,
    ) -> None:
        """With `background`, results can be read when they are on disk; it does the syncing."""
        self.query = query
        self.path = path
        self.subscribers = 0
        self.removed = False
        self.news = asyncio.Event()
        """Set when there are new rows, a new epoch or the end; replaced by a new event then."""
        self._cache = cache
        self._counters = counters
        self._on_damage = on_damage
        self._synced = None if background is None else SyncedEnd(path, background)
        self._reader: LogReader | None = None
        self._seen = -1
        self._read = 0  # offset behind the last row that was ever read
        # By position, the least recently used first; a reader that continues at a position reuses its cursor.
        self._cursors: OrderedDict[int, Cursor] = OrderedDict()

    @property
    def reader(self) -> LogReader | None:
        """The reader of the log, or None while the engine has not created it."""
        if self._reader is None:
            try:
                self._reader = LogReader(self.path, _READER_BYTES, self._on_damage)
            except LogMissingError:
                return None
        return self._reader

    @property
    def begin(self) -> int:
        """The offset of the first retained result."""
        reader = self.reader
        return 0 if reader is None else reader.begin

    @property
    def nbytes(self) -> int:
        """Bytes of the retained results on disk."""
        reader = self.reader
        return 0 if reader is None else reader.cursor(reader.begin).backlog.nbytes

    @property
    def end(self) -> int:
        """The offset of the next result."""
        reader = self.reader
        # Rows can be read just before the log reports them, and their readers may continue behind them.
        return 0 if reader is None else max(reader.end, self._read)

    @property
    def readable_end(self) -> int:
        """The offset behind the last result that readers get: with delivery `sync`, that the disk has."""
        return self.end if self._synced is None else self._synced.offset

    def position_after(self, after: int | None) -> int:
        """Return the position behind an offset; None stands for the first retained result."""
        if after is None:
            return self.begin
        end = self.end
        if after >= end:
            raise OffsetAhead(
                f"query '{self.query.id}' has answered up to offset {end - 1}, and rows after {after} were "
                "asked for: give the offset of the last row that you have, or 'latest'"
            )
        return after + 1

    @property
    def origin(self) -> Origin:
        """The origin of the results to come."""
        query = self.query
        return Origin(query.epoch, query.revision, query.schema)

    def origin_before(self, position: int) -> Origin:
        """Return the origin of the row before a position or, without one, of the row at it."""
        reader = self.reader
        if reader is None:
            return self.origin
        for row in (position - 1, position):
            if reader.begin <= row < reader.end:
                origin = origin_of_row(reader.cursor(row))
                if origin is not None:
                    return origin
        return self.origin

    def encoded(self, position: int, format_: ResultFormat) -> EncodedChunk | None:
        """Return the encoded chunk at a position, or None at the end; raises GapError."""
        if position >= self.readable_end:
            return None
        if self.subscribers < 2:
            return self._encode(position, format_)
        key = (self.query.id, position, format_)
        known = self._cache.get(key)
        if known is None:
            known = self._encode(position, format_)
            if known is not None:
                self._cache.add(key, known)
        return known

    def _encode(self, position: int, format_: ResultFormat) -> EncodedChunk | None:
        # Chunks end at multiples of their size, so that subscribers share them wherever they began.
        most = CHUNK_ROWS[format_]
        chunk = self.read(position, most - position % most)
        if chunk is None:
            return None
        self._counters.encodings += 1
        return EncodedChunk(chunk, format_)

    def read(self, position: int, most_rows: int, *, metadata_of: str | None = None) -> ResultChunk | None:
        """Read rows at a position as `read_chunk` does; None at the end. Raises GapError, Conflict."""
        reader = self.reader
        if self._synced is not None:
            most_rows = min(most_rows, self.readable_end - position)
        if reader is None or most_rows <= 0:
            return None
        cursor = self._cursors.pop(position, None) or reader.cursor(position)
        try:
            chunk = read_chunk(cursor, most_rows, metadata_of=metadata_of)
            if chunk is not None:
                self._read = max(self._read, chunk.stop)
            return chunk
        finally:
            self._cursors[cursor.position] = cursor
            while len(self._cursors) > _CURSORS:
                self._cursors.popitem(last=False)

    def look(self) -> bool:
        """Wake waiting readers if there is more to read, and return whether there is.

        Called for every doorbell; with delivery `sync` it has the disk get what was appended.
        """
        if self._synced is not None:
            self._synced.request(lambda: self.end, self._wake_if_grown)
        return self._wake_if_grown()

    async def settle(self) -> None:
        """Wait until the results that the log has now can be read."""
        target = self.end
        while not self.removed and self.readable_end < target:
            news = self.news
            self.look()
            if self.readable_end < target:
                await news.wait()

    def _wake_if_grown(self) -> bool:
        end = self.readable_end
        if end == self._seen:
            return False
        self._seen = end
        self.wake()
        return True

    def close(self) -> None:
        """Close the log; it is opened again when it is needed."""
        self._cursors.clear()
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def wake(self) -> None:
        """Wake all waiting readers."""
        self.news.set()
        self.news = asyncio.Event()
