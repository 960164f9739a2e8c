"""The binary layout of a frame: a header of fixed size, then columns that can be viewed in place."""

from __future__ import annotations

import struct
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mavstream_protocol.schema import FieldType, Schema
from mavstream_server.columns.column import DTYPES
from mavstream_server.log.format.description import LogDescription

FRAME_MAGIC = 0x7246764D  # "MvFr"
LOST_MAGIC = 0x6F4C764D
"""("MvLo") Starts a frame that a repair wrote over a damaged one; `sequence` is the number of lost rows."""
CHECKED = struct.Struct("<II")  # magic and crc, which the crc does not cover
COVERED = struct.Struct("<HHIqqqqqqqqqqqq")
FRAME = struct.Struct(CHECKED.format + COVERED.format.removeprefix("<"))
FRAME_BYTES = FRAME.size
CRC_FROM = CHECKED.size

STAMPED = 1
"""The flag of a frame whose rows have different arrival times.

Such a frame ends with the arrival time (ns) of each row; the one in its header is that of the last row.
"""
TRACED = 2
"""The flag of a frame of results, which ends with their provenance."""

# A bit of `nulls` per nullable column; those beyond the last bit share it.
_LAST_BIT = 62
# Frames can have any number of rows, so only this many layouts are cached.
_CACHED_LAYOUTS = 4096


class FrameKind(IntEnum):
    """The kind of a frame; only DATA frames have rows."""

    DATA = 1
    SNAPSHOT = 2
    """The writer's state at the start of a segment; readers skip it."""
    JOIN = 3
    """A producer announces rows: the watermark waits for it from here on, not only from its first row."""
    IDLE = 4
    CLOCK = 5
    """Time passed without rows; raises the watermark of streams without event time."""
    END = 6
    COMPLETE = 7
    """No producer will ever send again."""
    WATERMARK = 8
    """Raises the watermark to a given time."""


class Header(NamedTuple):
    """The fields of a frame's header, in the order of `FRAME`; times as in `watermarks.Stamp`."""

    magic: int
    crc: int
    kind: int
    flags: int
    rows: int
    length: int
    """Bytes of the whole frame, a multiple of 8."""
    position: int
    arrival: int
    producer: int
    sequence: int
    before: int
    others: int
    own: int
    after: int
    max_before: int
    nulls: int
    delta: int
    """The byte offset of the added texts from the frame's start; 0 if none are added."""


ColumnLayout = tuple[int, int, int, int, int]
"""Where a column is in a frame: (index into `ITEMS`, item shift, start, validity start, field index).

The item shift is the binary logarithm of an item's bytes. The start is in items from the start of the body,
or -1 for a field that the frame does not have: all rows are null. The validity start is in bytes from there,
or -1 if no row is null. A plain tuple, because it is unpacked for every column of every frame.
"""

ITEMS: tuple[np.dtype[Any], ...] = tuple(np.dtype(t) for t in (np.int64, np.float64, np.int32, np.bool_))
"""The item types of columns; a mapped segment has an array of each, and columns are slices of these."""
FLAGS = ITEMS.index(np.dtype(np.bool_))


class Body(NamedTuple):
    """The bytes of a frame after its header."""

    data: bytes
    nulls: int
    delta: int

    @property
    def length(self) -> int:
        """Bytes of the frame, including its header."""
        return FRAME_BYTES + len(self.data)


EMPTY_BODY = Body(b"", 0, 0)


@lru_cache(maxsize=1024)
def expected_columns(schema: Schema) -> tuple[tuple[str, np.dtype[Any], bool], ...]:
    """Return the name and type of each column of a frame, and whether it holds dictionary codes."""
    return tuple((f.name, DTYPES[f.type], f.type is FieldType.STRING) for f in schema)


class Layout:
    """Computes where the columns of a segment's frames are, for any number of rows."""

    def __init__(self, description: LogDescription, width: int | None = None) -> None:
        """The frames have the first `width` fields of the log, by default all."""
        schema = Schema(description.schema.fields[:width])
        self.schema = schema
        self.fields = schema.fields
        self.names = schema.names
        self.width = len(self.fields)
        self._absent = description.schema.fields[self.width :]
        self.event_time = description.event_time
        self.lateness = description.lateness_us
        self.text_fields = tuple(i for i, field in enumerate(self.fields) if field.type is FieldType.STRING)
        nullable = [i for i, field in enumerate(self.fields) if field.nullable]
        self.null_bits = {index: 1 << min(bit, _LAST_BIT) for bit, index in enumerate(nullable)}
        self.expected = expected_columns(schema)
        self.row_bytes = sum(dtype.itemsize for _, dtype, _ in self.expected) or 1
        """The least bytes of a frame that a row takes."""
        self._layouts: dict[tuple[int, int], dict[str, ColumnLayout]] = {}

    def add_absent(self, description: LogDescription) -> None:
        """Read the fields as nulls that the log has got and the frames do not have."""
        self._absent = description.schema.fields[self.width :]
        self._layouts.clear()

    def column_layouts(self, rows: int, nulls: int) -> dict[str, ColumnLayout]:
        """Return where each column is in a frame with this many rows and these null bits."""
        layouts = self._layouts.get((rows, nulls))
        if layouts is None:
            if len(self._layouts) >= _CACHED_LAYOUTS:
                self._layouts.clear()
            layouts = self._layouts[rows, nulls] = self._compute(rows, nulls)
        return layouts

    def _compute(self, rows: int, nulls: int) -> dict[str, ColumnLayout]:
        layouts: dict[str, ColumnLayout] = {}
        offset = 0
        for index, field in enumerate(self.fields):
            valid = -1
            if nulls & self.null_bits.get(index, 0):
                valid = offset
                offset += padded(rows)
            dtype = DTYPES[field.type]
            shift = dtype.itemsize.bit_length() - 1
            layouts[field.name] = (ITEMS.index(dtype), shift, offset >> shift, valid, index)
            offset += padded(rows << shift)
        for index, field in enumerate(self._absent, self.width):
            layouts[field.name] = (ITEMS.index(DTYPES[field.type]), 0, -1, -1, index)
        return layouts


def padded(size: int) -> int:
    """Round up to the alignment of columns."""
    return size + 7 & ~7


PADDING = tuple(bytes(-size % 8) for size in range(8))
"""The bytes that align a buffer to 8 bytes, by its length modulo 8."""
