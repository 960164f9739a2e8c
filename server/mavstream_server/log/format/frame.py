"""Frames for readers: the header is unpacked once, columns are views of the mapped segment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from mavstream_server.columns.batch import BEGIN_OF_TIME
from mavstream_server.columns.column import Column, Ints
from mavstream_server.log.format.layout import FLAGS, FRAME, FRAME_BYTES, STAMPED, FrameKind
from mavstream_server.log.watermarks import row_watermarks

if TYPE_CHECKING:
    from mavstream_server.log.mapped import MappedSegment

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
        "_row_watermarks",
        "after",
        "arrival",
        "before",
        "byte_offset",
        "cost",
        "delta",
        "first_position",
        "max_before",
        "nbytes",
        "nulls",
        "others",
        "own",
        "producer",
        "rows",
        "segment",
        "sequence",
        "stamped",
        "stop",
    )

    def __init__(self, segment: MappedSegment, byte_offset: int) -> None:
        # Unpacked directly into the slots: a named tuple in between would double the cost of small frames.
        (
            _,
            _,
            self._kind,
            flags,
            rows,
            self.nbytes,
            position,
            self.arrival,
            self.producer,
            self.sequence,
            self.before,
            self.others,
            self.own,
            self.after,
            self.max_before,
            self.nulls,
            self.delta,
        ) = FRAME.unpack_from(segment.view, byte_offset)
        self.rows: int = rows
        self.stamped = flags == STAMPED
        """Whether its rows have different arrival times."""
        self.first_position: int = position
        self.stop: int = position + rows
        """The position after the last row."""
        self.segment = segment
        self.byte_offset = byte_offset
        """Where the frame starts in its segment."""
        self.cost = 0
        """The bytes that the reader's cache accounts for it."""
        self._columns: dict[str, Column] = {}
        self._row_watermarks: Ints | None = None

    @property
    def kind(self) -> FrameKind:
        """The kind of the frame; a DATA frame may have no rows."""
        return _KINDS[self._kind]

    def column(self, name: str) -> Column:
        """Return a column of the rows, read-only; KeyError if the schema has no such field."""
        column = self._columns.get(name)
        return self.columns((name,))[name] if column is None else column

    def columns(self, names: Iterable[str] | None = None) -> dict[str, Column]:
        """Return the named columns, or all of them in the order of the schema; read-only."""
        made, segment, rows = self._columns, self.segment, self.rows
        layouts = segment.layout.column_layouts(rows, self.nulls)
        arrays, dictionaries = segment.arrays, segment.dictionaries
        body = self.byte_offset + FRAME_BYTES
        columns: dict[str, Column] = {}
        for name in layouts if names is None else names:
            column = made.get(name)
            if column is None:
                array, shift, start, valid_start, field = layouts[name]
                start += body >> shift
                valid = None
                if valid_start >= 0:
                    valid = arrays[FLAGS][body + valid_start : body + valid_start + rows]
                column = made[name] = Column(arrays[array][start : start + rows], valid, dictionaries[field])
            columns[name] = column
        return columns

    @property
    def stamps(self) -> Ints | None:
        """The arrival time (ns) of each row, never decreasing; None if it is the same for all."""
        if not self.stamped:
            return None
        stop = self.byte_offset + self.nbytes >> 3
        return cast(Ints, self.segment.arrays[0][stop - self.rows : stop])

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
        """Return the largest time (us) of the first `rows` rows; BEGIN_OF_TIME if there are none."""
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
