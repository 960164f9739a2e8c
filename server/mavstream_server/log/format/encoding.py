"""Encoding of frames: checks rows against the schema, then serializes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from zlib_ng.zlib_ng import crc32

from mavstream_protocol.schema import FieldType
from mavstream_server.columns.column import DTYPES, Column
from mavstream_server.log.errors import UnfitRowsError
from mavstream_server.log.format.coding import SegmentCoder
from mavstream_server.log.format.layout import (
    CHECKED,
    COVERED,
    FRAME_BYTES,
    FRAME_MAGIC,
    PADDING,
    STAMPED,
    TRACED,
    Body,
    FrameKind,
    Layout,
)
from mavstream_server.log.format.shared_columns import RowSlice, arrivals_differ, body_of_slices
from mavstream_server.log.format.texts import encode_texts
from mavstream_server.log.watermarks import Stamp

_SMALL = 1024  # bytes


class NewFrame(NamedTuple):
    """Rows to append as one frame, with their producer and sequence."""

    columns: Mapping[str, Column] | list[RowSlice]
    """The columns, or slices of shared columns of one or more messages, in order."""
    size: int
    producer: int = 0
    sequence: int = 0
    arrival: int = 0
    """The arrival time in ns, of slices that of the first; 0 stands for the one that the append is given."""
    provenance: bytes = b""
    """The encoded provenance of results, not of slices."""
    latest: int = 0
    """The `latest_time` of results."""

    @property
    def stamped(self) -> bool:
        """Whether the frame stores an arrival time for each row."""
        return isinstance(self.columns, list) and arrivals_differ(self.columns)


def check_rows(path: Path, layout: Layout, frame: NewFrame) -> None:
    """Raise UnfitRowsError unless the columns are those of the schema, with its types and `size` rows."""
    columns, size = frame.columns, frame.size
    if isinstance(columns, list):
        _check_slices(path, layout, columns, size)
        return
    if not 0 <= size < 1 << 31:
        raise UnfitRowsError(path, f"a frame must have 0 to {(1 << 31) - 1} rows, got {size}; split it")
    # Small frames are frequent: a fast check accepts correct ones, a detailed one explains what is wrong.
    if len(columns) == layout.width:
        for name, dtype, text in layout.expected:
            column = columns.get(name)
            if (
                column is None
                or column.valid is not None
                or len(column.values) != size
                or column.values.dtype is not dtype
                or (text and column.dictionary is None)
            ):
                break
        else:
            return
    _check_each(path, layout, columns, size)


def _check_slices(path: Path, layout: Layout, slices: list[RowSlice], size: int) -> None:
    for shared, start, rows, _ in slices:
        if shared.expected is not layout.expected and shared.expected != layout.expected:
            expected = ", ".join(layout.names)
            raise UnfitRowsError(
                path, f"expected the columns {expected}; got shared columns {', '.join(shared.schema.names)}"
            )
        if not 0 <= start < start + rows <= shared.size:
            raise UnfitRowsError(
                path, f"expected rows 0 to {shared.size} of shared columns, got {start} to {start + rows}"
            )
    found = sum([each.size for each in slices])
    if found != size:
        raise UnfitRowsError(path, f"expected slices of {size} rows for the frame, got {found} rows")


def _check_each(path: Path, layout: Layout, columns: Mapping[str, Column], size: int) -> None:
    if len(columns) != len(layout.fields) or any(field.name not in columns for field in layout.fields):
        expected = ", ".join(field.name for field in layout.fields)
        raise UnfitRowsError(path, f"expected the columns {expected}; got {', '.join(columns)}")
    for field in layout.fields:
        column = columns[field.name]
        values, valid = column.values, column.valid
        if len(values) != size or (valid is not None and len(valid) != size):
            raise UnfitRowsError(path, f"column {field.name!r} must have {size} rows, got {len(values)}")
        if values.dtype != DTYPES[field.type]:
            raise UnfitRowsError(
                path,
                f"column {field.name!r} must be {DTYPES[field.type]} for {field.type}, got {values.dtype}",
            )
        if field.type is FieldType.STRING and column.dictionary is None:
            raise UnfitRowsError(path, f"column {field.name!r} has codes and no dictionary; give it one")
        if valid is not None and not field.nullable and not valid.all():
            row = int(np.argmin(valid))
            raise UnfitRowsError(
                path,
                f"column {field.name!r} is not nullable, got null in row {row}; fill it, or omit the row",
            )


def encode_body(layout: Layout, frame: NewFrame, coder: SegmentCoder) -> Body:
    """Serialize checked rows; texts that are new to the segment become part of the frame."""
    columns, size, null_bits = frame.columns, frame.size, layout.null_bits
    if isinstance(columns, list):
        return body_of_slices(columns, coder)
    nulls = 0
    for index, bit in null_bits.items():
        valid = columns[layout.names[index]].valid
        if valid is not None and not valid.all():
            nulls |= bit
    parts: list[bytes | memoryview] = []
    for index, (name, _, text) in enumerate(layout.expected):
        column = columns[name]
        if nulls and nulls & null_bits.get(index, 0):
            flags = np.ones(size, dtype=bool) if column.valid is None else column.valid
            parts += (np.ascontiguousarray(flags, dtype=np.bool_).data, PADDING[size % 8])
        values = coder.codes(index, column) if text else column.values
        nbytes = values.nbytes
        # A view takes longer than a copy of few bytes.
        parts.append(values.tobytes() if nbytes <= _SMALL else np.ascontiguousarray(values).data)
        if nbytes % 8:
            parts.append(PADDING[nbytes % 8])
    return _joined(parts, nulls, coder)


def encode_plain(
    layout: Layout, columns: Mapping[str, Column], size: int, coder: SegmentCoder
) -> Body | None:
    """Check and serialize rows without nulls in one pass; None if `check_rows` has to decide.

    Small frames are frequent: this takes half of the time of `check_rows` and `encode_body`.
    """
    if len(columns) != layout.width:
        return None
    parts: list[bytes | memoryview] = []
    for index, (name, dtype, text) in enumerate(layout.expected):
        column = columns.get(name)
        if column is None or column.valid is not None:
            return None
        values = column.values
        if len(values) != size or values.dtype is not dtype:
            return None
        if text:
            if column.dictionary is None:
                return None
            values = coder.codes(index, column)
        nbytes = values.nbytes
        parts.append(values.tobytes() if nbytes <= _SMALL else np.ascontiguousarray(values).data)
        if nbytes & 7:
            parts.append(PADDING[nbytes & 7])
    return _joined(parts, 0, coder)


def _joined(parts: list[bytes | memoryview], nulls: int, coder: SegmentCoder) -> Body:
    """Return the body of a frame from its columns, followed by the texts that are new to the segment."""
    delta = 0
    if coder.dictionaries and (added := coder.take_added()):
        delta = FRAME_BYTES + sum(memoryview(part).nbytes for part in parts)
        parts.append(encode_texts(added))
    return Body(b"".join(parts), nulls, delta)


def seal_frame(
    body: Body,
    kind: FrameKind,
    stamp: Stamp,
    position: int,
    arrival: int,
    rows: int = 0,
    producer: int = 0,
    sequence: int = 0,
    stamps: bytes = b"",
    provenance: bytes = b"",
) -> bytes:
    """Return the header of a frame.

    Behind the body follow `stamps`, the arrival times if rows have several, or the `provenance` of results.
    """
    data, nulls, delta = body
    rest = stamps or provenance
    length = FRAME_BYTES + len(data) + len(rest)
    flags = (STAMPED if stamps else TRACED) if rest else 0
    covered = COVERED.pack(
        kind, flags, rows, length, position, arrival, producer, sequence, *stamp, nulls, delta
    )
    crc = crc32(data, crc32(covered))
    if rest:
        crc = crc32(rest, crc)
    return CHECKED.pack(FRAME_MAGIC, crc) + covered
