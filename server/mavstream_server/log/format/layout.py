"""The bytes of a frame: a header of fixed size, then plain columns that can be viewed where they lie."""

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
CHECKED = struct.Struct("<II")  # magic and crc, which the crc does not cover
COVERED = struct.Struct("<HHIqqqqqqqqqqqq")
FRAME = struct.Struct(CHECKED.format + COVERED.format.removeprefix("<"))
FRAME_BYTES = FRAME.size
CRC_FROM = CHECKED.size

STAMPED = 1
"""The flag of a frame whose rows came at different times: it ends with the arrival of each, in ns. That of
its header is the last."""

# A bit of `nulls` per nullable column; those beyond the last bit share it.
_LAST_BIT = 62
# Sizes of frames vary freely, so plans for them are kept only up to this many.
_PLANS = 4096


class FrameKind(IntEnum):
    """What a frame is; all but DATA have no rows."""

    DATA = 1
    SNAPSHOT = 2
    """What the writer knew at the start of a segment; readers pass over it."""
    JOIN = 3
    """A producer announces rows: the watermark waits for it from here, not from its first row."""
    IDLE = 4
    CLOCK = 5
    """Time passed without rows; raises the watermark where time is arrival."""
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
    """Where the added texts start, in bytes from the frame's start; 0 if none are added."""


ColumnPlace = tuple[int, int, int, int, int]
"""Where a column of a frame lies: which of `ITEMS` it is made of, an item's bytes as a power of two, where
values start in items from the start of the body, where validity bytes start or -1 if no row is null, and
which field of the schema it is. A plain tuple, because it is taken apart for every column of every frame."""

ITEMS: tuple[np.dtype[Any], ...] = tuple(np.dtype(t) for t in (np.int64, np.float64, np.int32, np.bool_))
"""What columns are made of; a mapped segment is one array of each, and columns are slices of them."""
FLAGS = ITEMS.index(np.dtype(np.bool_))


class Body(NamedTuple):
    """The bytes of a frame behind its header."""

    data: bytes
    nulls: int
    delta: int

    @property
    def length(self) -> int:
        """Bytes of the frame, header included."""
        return FRAME_BYTES + len(self.data)


EMPTY_BODY = Body(b"", 0, 0)


@lru_cache(maxsize=1024)
def expected_columns(schema: Schema) -> tuple[tuple[str, np.dtype[Any], bool], ...]:
    """Return name and type of each column of a frame, and whether it is one of codes."""
    return tuple((f.name, DTYPES[f.type], f.type is FieldType.STRING) for f in schema)


class Layout:
    """How the columns of a log's frames lie, for any number of rows."""

    def __init__(self, description: LogDescription) -> None:
        self.description = description
        self.fields = description.schema.fields
        self.names = description.schema.names
        self.width = len(self.fields)
        self.event_time = description.event_time
        self.lateness = description.lateness_us
        self.text_fields = tuple(i for i, field in enumerate(self.fields) if field.type is FieldType.STRING)
        nullable = [i for i, field in enumerate(self.fields) if field.nullable]
        self.null_bits = {index: 1 << min(bit, _LAST_BIT) for bit, index in enumerate(nullable)}
        self.expected = expected_columns(description.schema)
        self._plans: dict[tuple[int, int], dict[str, ColumnPlace]] = {}

    def places(self, rows: int, nulls: int) -> dict[str, ColumnPlace]:
        """Return where each column of such a frame lies."""
        plan = self._plans.get((rows, nulls))
        if plan is None:
            if len(self._plans) >= _PLANS:
                self._plans.clear()
            plan = self._plans[rows, nulls] = self._plan(rows, nulls)
        return plan

    def _plan(self, rows: int, nulls: int) -> dict[str, ColumnPlace]:
        plan: dict[str, ColumnPlace] = {}
        offset = 0
        for index, field in enumerate(self.fields):
            valid = -1
            if nulls & self.null_bits.get(index, 0):
                valid = offset
                offset += padded(rows)
            dtype = DTYPES[field.type]
            shift = dtype.itemsize.bit_length() - 1
            plan[field.name] = (ITEMS.index(dtype), shift, offset >> shift, valid, index)
            offset += padded(rows << shift)
        return plan


def padded(size: int) -> int:
    """Round up to the alignment of columns."""
    return size + 7 & ~7


PADDING = tuple(bytes(-size % 8) for size in range(8))
"""What to append to a buffer, by its length modulo 8."""
