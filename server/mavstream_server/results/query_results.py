"""The answers of one query: its result log, where readers stand in it, and encodings that they share."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mavstream_protocol.schema import Schema
from mavstream_protocol.wire.resources import ActualState
from mavstream_server.core.errors import ServiceError
from mavstream_server.log import Cursor, LogMissingError, LogReader
from mavstream_server.results.encoding import (
    MOST_ROWS,
    ResultChunk,
    ResultFormat,
    encode_chunk,
    epoch_of_row,
    read_chunk,
)

# Frames are decoded once per encoding, so the readers' own caches may be small.
_READER_BYTES = 256 << 10
# Lagging subscribers each take a cursor of their own while they read; those that keep up share one.
_CURSORS = 8


class AnsweringQuery(Protocol):
    """What the feed must know of a query; the query service keeps it up to date."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def schema(self) -> Schema:
        """The columns of its answers."""

    @property
    def epoch(self) -> int:
        """The epoch of the answers to come."""

    @property
    def final(self) -> ActualState | None:
        """How it ended, or None."""

    @property
    def reason(self) -> str | None:
        """Why it ended so."""


class OffsetAhead(ServiceError):
    """An offset behind the last answer was asked for."""

    code = "offset_ahead"
    title = "The query has not answered so much"
    status = 422


@dataclass(slots=True)
class ResultCounters:
    """What happened to results on their way out, since the server started."""

    encodings: int = 0
    """Portions encoded; what subscribers share counts once."""
    messages: int = 0
    rows: int = 0
    """Rows handed to subscribers and pulls."""
    gaps: int = 0
    """How often a subscriber or a pull was told that rows are gone."""
    missed: int = 0
    """The rows of these gaps."""
    disconnected: int = 0
    """Subscribers closed because they fell behind and had asked for that."""


class EncodedChunk:
    """A portion as a message, ready to be sent to any number of subscribers."""

    __slots__ = ("epoch", "message", "start", "stop")

    def __init__(self, portion: ResultChunk, format_: ResultFormat) -> None:
        self.start, self.stop, self.epoch, _ = portion
        self.message = encode_chunk(portion, format_)


class ChunkCache:
    """EncodedChunk portions of all queries, the latest used kept within a number of bytes."""

    def __init__(self, room: int = 32 << 20) -> None:
        self._room = room
        self._kept: OrderedDict[tuple[str, int, ResultFormat], EncodedChunk] = OrderedDict()

    def get(self, key: tuple[str, int, ResultFormat]) -> EncodedChunk | None:
        """Return what is kept under a key."""
        known = self._kept.get(key)
        if known is not None:
            self._kept.move_to_end(key)
        return known

    def add(self, key: tuple[str, int, ResultFormat], encoded: EncodedChunk) -> None:
        """Keep a portion under a key that has none, and drop others for it where there is no room."""
        self._kept[key] = encoded
        self._room -= len(encoded.message)
        while self._room < 0 and len(self._kept) > 1:
            self._room += len(self._kept.popitem(last=False)[1].message)


class QueryResults:
    """The answers of one query: its log, where readers stand in it, and who waits for more."""

    def __init__(
        self, query: AnsweringQuery, path: Path, cache: ChunkCache, counters: ResultCounters
    ) -> None:
        self.query = query
        self.path = path
        self.subscribers = 0
        self.removed = False
        self.news = asyncio.Event()
        """Set once when rows, an epoch or an end have come; then another one takes its place."""
        self._cache = cache
        self._counters = counters
        self._reader: LogReader | None = None
        self._seen = -1
        self._read = 0  # behind the last row that was ever handed out
        # By position, the least recently used first: whoever reads on from there takes it.
        self._cursors: OrderedDict[int, Cursor] = OrderedDict()

    @property
    def reader(self) -> LogReader | None:
        """The reader of the log, or None while the engine has not made it."""
        if self._reader is None:
            try:
                self._reader = LogReader(self.path, _READER_BYTES)
            except LogMissingError:
                return None
        return self._reader

    @property
    def begin(self) -> int:
        """The offset of the first answer that is kept."""
        reader = self.reader
        return 0 if reader is None else reader.begin

    @property
    def end(self) -> int:
        """The offset of the next answer."""
        reader = self.reader
        # Rows can be read a moment before the log says so, and whoever got them may go on behind them.
        return 0 if reader is None else max(reader.end, self._read)

    def position_after(self, after: int | None) -> int:
        """Return where reading starts that goes on behind an offset; None stands for all that is kept."""
        if after is None:
            return self.begin
        end = self.end
        if after >= end:
            raise OffsetAhead(
                f"query '{self.query.id}' has answered up to offset {end - 1}, and rows after {after} were "
                "asked for: give the offset of the last row that you have, or 'latest'"
            )
        return after + 1

    def epoch_before(self, position: int) -> int:
        """Return the epoch that a reader at a position has last seen a row of, or is going to."""
        reader = self.reader
        if reader is None:
            return self.query.epoch
        for row in (position - 1, position):
            if reader.begin <= row < reader.end:
                epoch = epoch_of_row(reader.cursor(row))
                if epoch is not None:
                    return epoch
        return self.query.epoch

    def encoded(self, position: int, format_: ResultFormat) -> EncodedChunk | None:
        """Return the next portion at a position, or None when all is read; raises GapError."""
        if position >= self.end:
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
        # Portions end at multiples of their size, so that subscribers who began anywhere come to share.
        portion = self.read(position, MOST_ROWS - position % MOST_ROWS)
        if portion is None:
            return None
        self._counters.encodings += 1
        return EncodedChunk(portion, format_)

    def read(self, position: int, most_rows: int) -> ResultChunk | None:
        """Take rows at a position, or None when all is read; raises GapError."""
        reader = self.reader
        if reader is None:
            return None
        cursor = self._cursors.pop(position, None) or reader.cursor(position)
        try:
            portion = read_chunk(cursor, self.query.schema, most_rows)
            if portion is not None:
                self._read = max(self._read, portion.stop)
            return portion
        finally:
            self._cursors[cursor.position] = cursor
            while len(self._cursors) > _CURSORS:
                self._cursors.popitem(last=False)

    def look(self) -> None:
        """Wake those who wait if the log has grown; called for every ring of the doorbell."""
        end = self.end
        if end != self._seen:
            self._seen = end
            self.wake()

    def wake(self) -> None:
        """Let all who wait look again."""
        self.news.set()
        self.news = asyncio.Event()
