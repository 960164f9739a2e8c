"""Frames for readers: the header is unpacked once, columns are views of the mapped segment."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from mavstream_server.columns.batch import BEGIN_OF_TIME
from mavstream_server.columns.column import Column, Ints, null_column
from mavstream_server.log.format.layout import (
    FLAGS,
    FRAME_BYTES,
    ITEMS,
    STAMPED,
    TRACED,
    ColumnLayout,
    FrameKind,
)
from mavstream_server.log.format.provenance import Provenance, decode_provenance, latest_time
from mavstream_server.log.watermarks import row_watermarks

if TYPE_CHECKING:
    from mavstream_server.log.mapped import MappedSegment

# The parts of the header that every frame needs, and those that only some do.
_FIRST = struct.Struct("<8xHHIqqqq48xqq")
_REST = struct.Struct("<48xqqqqqq")

_KINDS = {kind.value: kind for kind in FrameKind}


class Frame:
    """Rows of a log, or a mark between them. Immutable; shared by all cursors of a reader.

    Columns are created on first use and cached. A frame keeps its segment mapped, so that its columns stay
    readable after the file was removed. Times are in us. `arrival` is in ns: that of the last row, and of all
    rows unless there are `stamps`.
    """

    __slots__ = (
        "_columns",
        "_kind",
        "_provenance",
        "_row_watermarks",
        "_unpacked",
        "arrival",
        "byte_offset",
        "cost",
        "delta",
        "first_position",
        "nbytes",
        "nulls",
        "producer",
        "rows",
        "segment",
        "stamped",
        "traced",
    )

    def __init__(self, segment: MappedSegment, byte_offset: int) -> None:
        # Unpacked directly into the slots: a named tuple in between would double the cost of small frames.
        (
            self._kind,
            flags,
            rows,
            self.nbytes,
            position,
            self.arrival,
            self.producer,
            self.nulls,
            self.delta,
        ) = _FIRST.unpack_from(segment.view, byte_offset)
        self.rows: int = rows
        self.stamped = flags == STAMPED
        """Whether its rows have different arrival times."""
        self.traced = flags == TRACED
        """Whether it has the provenance of its rows: it is of a result log."""
        self.first_position: int = position
        self.segment = segment
        self.byte_offset = byte_offset
        """Where the frame starts in its segment."""
        self.cost = 0
        """The bytes that the reader's cache accounts for it."""
        self._columns: dict[str, Column] = {}
        self._row_watermarks: Ints | None = None
        self._provenance: Provenance | None = None
        self._unpacked: tuple[int, ...] | None = None

    @property
    def _rest(self) -> tuple[int, ...]:
        """The rest of the header, unpacked when it is first used: for most frames it never is."""
        if self._unpacked is None:
            self._unpacked = _REST.unpack_from(self.segment.view, self.byte_offset)
        return self._unpacked

    @property
    def sequence(self) -> int:
        """The producer's number of the frame."""
        return self._rest[0]

    @property
    def before(self) -> int:
        """The watermark before the frame."""
        return self._rest[1]

    @property
    def others(self) -> int:
        """See `Stamp.others`."""
        return self._rest[2]

    @property
    def own(self) -> int:
        """See `Stamp.own`."""
        return self._rest[3]

    @property
    def after(self) -> int:
        """The watermark after the frame."""
        return self._rest[4]

    @property
    def max_before(self) -> int:
        """The largest time of all rows before the frame."""
        return self._rest[5]

    @property
    def stop(self) -> int:
        """The position after the last row."""
        return self.first_position + self.rows

    @property
    def kind(self) -> FrameKind:
        """The kind of the frame; a DATA frame may have no rows."""
        return _KINDS[self._kind]

    def column(self, name: str) -> Column:
        """Return a column of the rows, read-only; KeyError if the log has no such field."""
        column = self._columns.get(name)
        if column is None:
            layouts = self.segment.layout.column_layouts(self.rows, self.nulls)
            column = self._columns[name] = self._made(layouts[name])
        return column

    def columns(self, names: Iterable[str] | None = None) -> dict[str, Column]:
        """Return the named columns, or all of them in the order of the schema; read-only."""
        made, columns = self._columns, {}
        layouts = self.segment.layout.column_layouts(self.rows, self.nulls)
        for name in layouts if names is None else names:
            column = made.get(name)
            if column is None:
                column = made[name] = self._made(layouts[name])
            columns[name] = column
        return columns

    def _made(self, layout: ColumnLayout) -> Column:
        """Return a column as a view of the mapped segment."""
        array, shift, start, valid_start, field = layout
        segment, rows, body = self.segment, self.rows, self.byte_offset + FRAME_BYTES
        if start < 0:
            return null_column(ITEMS[array], rows)
        start += body >> shift
        valid = None
        if valid_start >= 0:
            valid = segment.arrays[FLAGS][body + valid_start : body + valid_start + rows]
        return Column(segment.arrays[array][start : start + rows], valid, segment.dictionaries[field])

    @property
    def stamps(self) -> Ints | None:
        """The arrival time (ns) of each row, never decreasing; None if it is the same for all."""
        if not self.stamped:
            return None
        stop = self.byte_offset + self.nbytes >> 3
        return cast(Ints, self.segment.arrays[0][stop - self.rows : stop])

    @property
    def provenance(self) -> Provenance | None:
        """Where its rows come from; None for a frame that is not of a result log."""
        if self.traced and self._provenance is None:
            stop = self.byte_offset + self.nbytes >> 3
            self._provenance = decode_provenance(cast(Ints, self.segment.arrays[0]), stop, self.rows)
        return self._provenance

    def arrival_of(self, row: int) -> int:
        """Return the arrival time (ns) of a row, or of the mark."""
        stamps = self.stamps
        return self.arrival if stamps is None else int(stamps[row])

    @property
    def time(self) -> Ints | None:
        """The event time (us) of each row; None for a stream without event time."""
        event_time = self.segment.layout.event_time
        return None if event_time is None else self.column(event_time).values

    def largest_time(self, rows: int) -> int:
        """Return the largest time (us) of the first `rows` rows; BEGIN_OF_TIME if there are none.

        Of results it is their `latest_time`.
        """
        if self.traced:
            provenance = self.provenance
            assert provenance is not None
            if rows >= self.rows or provenance.time is None:
                return latest_time(provenance)
            return latest_time(provenance._replace(time=provenance.time[:rows], mark=None))
        if not self.rows or not rows:
            return BEGIN_OF_TIME
        times = self.time
        return self.arrival_of(rows - 1) // 1000 if times is None else int(times[:rows].max())

    def row_watermarks(self) -> Ints | None:
        """Return the watermark directly before each row; None without event time, where no row is late."""
        if self._row_watermarks is None:
            times = self.time
            if times is None:
                return None
            lateness = self.segment.layout.lateness
            self._row_watermarks = row_watermarks(times, self.before, self.others, self.own, lateness)
        return self._row_watermarks
