"""Rows of streams for clients: read in pages, in small pieces between other work of the event loop."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import pyarrow as pa

from mavstream_protocol.instants import FIRST_INSTANT, LAST_INSTANT, format_instant
from mavstream_protocol.schema import Schema
from mavstream_server.columns.batch import BEGIN_OF_TIME, END_OF_TIME
from mavstream_server.core.clock import Clock
from mavstream_server.core.errors import ServiceError
from mavstream_server.core.event_loop.work_queue import WorkQueue, in_turn
from mavstream_server.core.storage.damage import DamageReport
from mavstream_server.log import Cursor, GapCause, GapError, LogEnd, LogReader
from mavstream_server.results.encoding import CHUNK_ROWS, ResultFormat, fitting_rows, plain_batch
from mavstream_server.results.row_metadata import gather_rows, with_metadata
from mavstream_server.results.row_pages import EncodedRows

T = TypeVar("T")

DEFAULT_ROWS = 1_000
MOST_ROWS = 100_000
_PAGE_BYTES = 8 << 20
_PIECE_BYTES = 1 << 20
_PIECE_FRAMES = 256
"""Frames of a piece: decoding them blocks the event loop, for some 3 us each."""
_READER_BYTES = 1 << 20
_CURSORS = 8
_OPEN_STREAMS = 64
_IDLE_NS = 60_000_000_000
"""After so long without a reader the files of a stream are closed, so that removed ones free their space."""
_LAST = -1
"""The importance of reading rows: below that of every class."""


class PositionAhead(ServiceError):
    """The requested position is behind the last row."""

    code = "position_ahead"
    title = "The stream has fewer rows"
    status = 422


class ReadableStream(Protocol):
    """What is needed of a stream to read its rows."""

    @property
    def path(self) -> Path:
        """The directory of its log."""

    @property
    def readable_end(self) -> LogEnd:
        """The end of what may be read; raises ServiceError if the files cannot be read."""


@dataclass(slots=True)
class RowPage:
    """Consecutive rows of a stream, encoded."""

    rows: EncodedRows
    next: int
    """The position of the last row, or of the last one that is missing: the `after` of the next page."""
    end: LogEnd
    """The end of the stream when the page was asked for."""
    gap: tuple[int, int] | None = None
    """Positions before the rows that cannot be read, excluding the stop."""
    gap_reason: GapCause | None = None

    def add_gap(self, missing: GapError) -> None:
        """Tell that rows before those of the page are missing."""
        self.gap = (missing.start if self.gap is None else self.gap[0], missing.stop)
        if self.gap_reason is not GapCause.DAMAGE:
            self.gap_reason = missing.cause

    @property
    def watermark(self) -> str | None:
        """The watermark at the end as text; None if no row has come yet."""
        value = self.end.watermark
        if value == BEGIN_OF_TIME:
            return None
        return format_instant(min(max(value, FIRST_INSTANT), LAST_INSTANT))

    @property
    def complete(self) -> bool:
        """Whether no rows will follow the end."""
        return self.end.watermark == END_OF_TIME

    def json(self) -> bytes:
        """Return the JSON form of `StreamRows`."""
        return self.rows.json(
            next=self.next,
            end=self.end.position,
            watermark=self.watermark,
            complete=self.complete,
            gap=self.gap,
            gap_reason=self.gap_reason,
        )


class _OpenStream:
    """The log of one stream while it is read, with the cursors at which readers may go on."""

    def __init__(self, stream: ReadableStream, damage: DamageReport, now: int) -> None:
        self.stream = stream
        self.reader = LogReader(stream.path, _READER_BYTES, damage.add)
        self.lock = asyncio.Lock()  # a reader is not thread-safe, and seeks run in a thread
        self.used = now
        self._cursors: OrderedDict[int, Cursor] = OrderedDict()

    async def take_cursor(self, position: int) -> Cursor:
        """Return a cursor at a position, for one reader."""
        known = self._cursors.pop(position, None)
        if known is not None:
            return known
        cursor = self.reader.cursor(position)
        # Finding the frame may take a second: everything before it in its segment is verified.
        await _in_thread(lambda: cursor.behind)
        return cursor

    def give_back(self, cursor: Cursor) -> None:
        """Keep a cursor for who reads on there."""
        self._cursors[cursor.position] = cursor
        while len(self._cursors) > _CURSORS:
            self._cursors.popitem(last=False)


@dataclass(slots=True)
class StreamRows:
    """Reads pages of rows for clients. Lives in one event loop."""

    find: Callable[[str], ReadableStream]
    """Returns the stream of a name; raises NotFound."""
    work: WorkQueue
    clock: Clock
    damage: DamageReport = field(default_factory=DamageReport)
    _open: OrderedDict[str, _OpenStream] = field(default_factory=OrderedDict)

    async def page(
        self, name: str, after: int | None, limit: int, format_: ResultFormat, *, metadata: bool = False
    ) -> RowPage:
        """Return rows behind a position, at most `limit` and about 8 MiB; with `metadata` as columns.

        Without `after` it starts with the oldest retained row. Raises NotFound, PositionAhead, Conflict, and
        what `ReadableStream.readable_end` raises.
        """
        opened = self._of(name)
        schema = opened.reader.description.schema  # rows from before a field was added have nulls there
        if metadata:
            schema = with_metadata(schema, f"stream '{name}'")
        async with opened.lock:
            end = opened.stream.readable_end
            position = min(opened.reader.begin, end.position) if after is None else after + 1
            if position > end.position:
                raise PositionAhead(
                    f"stream '{name}' has rows up to position {end.position - 1}, and rows after {after} "
                    "were asked for: give the position of the last row that you have"
                )
            try:
                rows = EncodedRows(schema, format_)
                return await self._read(opened, position, end, min(limit, MOST_ROWS), rows)
            finally:
                opened.used = self.clock.monotonic()

    def expire(self) -> None:
        """Close the logs of streams that nobody has read for a minute."""
        before = self.clock.monotonic() - _IDLE_NS
        for name, opened in list(self._open.items()):
            if opened.used < before and not opened.lock.locked():
                del self._open[name]

    async def _read(
        self, opened: _OpenStream, position: int, end: LogEnd, limit: int, rows: EncodedRows
    ) -> RowPage:
        page = RowPage(rows, position - 1, end)
        room = _PAGE_BYTES
        while page.rows.count < limit and room > 0 and position < end.position:
            most = min(limit - page.rows.count, end.position - position, CHUNK_ROWS[rows.format])
            cursor = await opened.take_cursor(position)
            try:
                piece = await in_turn(self.work, _LAST, partial(_read_piece, cursor, rows.schema, most))
            except GapError as missing:
                if page.rows.count:
                    break  # the next page has it
                page.add_gap(missing)
                position = missing.stop
            else:
                if piece is None:
                    break
                batch, position = piece
                room -= 0 if batch is None else page.rows.add(batch)
            page.next = position - 1
            if cursor.position == position:  # otherwise it has passed a gap that it has not raised yet
                opened.give_back(cursor)
        return page

    def _of(self, name: str) -> _OpenStream:
        stream = self.find(name)
        opened = self._open.get(name)
        if opened is None or opened.stream is not stream:  # it may have been removed and created again
            stream.readable_end  # noqa: B018 - raises what is wrong with its files
            opened = self._open[name] = _OpenStream(stream, self.damage, self.clock.monotonic())
        self._open.move_to_end(name)
        while len(self._open) > _OPEN_STREAMS:
            self._open.popitem(last=False)
        return opened


def _read_piece(cursor: Cursor, schema: Schema, most: int) -> tuple[pa.RecordBatch | None, int] | None:
    """Read a few rows; return them, None if there were only marks, and the position behind them.

    Returns None if there is nothing to read yet; raises GapError.
    """
    before = cursor.state
    spans = cursor.take(most, _PIECE_FRAMES)
    rows = [span for span in spans if span[2] > span[1]]
    if not rows:
        return (None, cursor.position) if spans else None
    start = rows[0][0].first_position + rows[0][1]
    count = sum(stop - first for _, first, stop in rows)
    columns = gather_rows(rows, schema)
    fitting = fitting_rows(columns, schema, count, _PIECE_BYTES)
    if fitting < count:
        columns = {name: column.slice(0, fitting) for name, column in columns.items()}
        cursor.restore(before)
        cursor.take(fitting, _PIECE_FRAMES)
    return plain_batch(columns, schema), start + fitting


async def _in_thread(work: Callable[[], T]) -> T:
    """Do work in a thread and wait for its end, even if this task is cancelled meanwhile."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
