"""Frames as the writer makes them: rows are checked against the schema, then laid out as bytes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mavstream_protocol.schema import FieldType
from mavstream_server.columns.column import DTYPES, Column
from mavstream_server.log.coding import SegmentCoder
from mavstream_server.log.layout import (
    CHECKED,
    COVERED,
    FRAME_BYTES,
    FRAME_MAGIC,
    PADDING,
    Body,
    FrameKind,
    Layout,
)
from mavstream_server.log.pack import Pack
from mavstream_server.log.problems import UnfitRowsError
from mavstream_server.log.texts import encode_texts
from mavstream_server.log.watermarks import Stamp

_SMALL = 1024  # bytes


class NewFrame(NamedTuple):
    """Rows to append as one frame, and who sent them."""

    columns: Mapping[str, Column] | Pack
    """All of their rows, or a pack of which some are the frame's."""
    size: int
    producer: int = 0
    sequence: int = 0
    arrival: int = 0
    """When they came, in ns; 0 is the time that the append is given."""
    start: int = 0
    """Where in a pack they begin."""


def check_rows(path: Path, layout: Layout, frame: NewFrame) -> None:
    """Raise UnfitRowsError unless the columns are those of the schema, with its types and `size` rows."""
    columns, size = frame.columns, frame.size
    if isinstance(columns, Pack):
        check_part(path, layout, columns, frame.start, size)
        return
    if not 0 <= size < 1 << 31:
        raise UnfitRowsError(path, f"a frame holds 0 to {(1 << 31) - 1} rows, {size} came; split it")
    # Frames of a few rows are many: what is right is seen at one glance, what is not is looked at again.
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


def check_part(path: Path, layout: Layout, pack: Pack, start: int, size: int) -> None:
    """Raise UnfitRowsError unless the rows are there and have the schema of the log."""
    if pack.expected is not layout.expected and pack.expected != layout.expected:
        raise UnfitRowsError(path, f"expected other columns than the pack's, {', '.join(pack.schema.names)}")
    if not 0 <= start <= start + size <= pack.size:
        raise UnfitRowsError(path, f"rows {start} to {start + size} are not in a pack of {pack.size}")


def _check_each(path: Path, layout: Layout, columns: Mapping[str, Column], size: int) -> None:
    if len(columns) != len(layout.fields) or any(field.name not in columns for field in layout.fields):
        expected = ", ".join(field.name for field in layout.fields)
        raise UnfitRowsError(path, f"expected the columns {expected}; {', '.join(columns)} came")
    for field in layout.fields:
        column = columns[field.name]
        values, valid = column.values, column.valid
        if len(values) != size or (valid is not None and len(valid) != size):
            raise UnfitRowsError(path, f"column {field.name!r} must have {size} rows, it has {len(values)}")
        if values.dtype != DTYPES[field.type]:
            raise UnfitRowsError(
                path,
                f"column {field.name!r} must be {DTYPES[field.type]} for {field.type}, it is {values.dtype}",
            )
        if field.type is FieldType.STRING and column.dictionary is None:
            raise UnfitRowsError(path, f"column {field.name!r} has codes without a dictionary; give it one")
        if valid is not None and not field.nullable and not valid.all():
            row = int(np.argmin(valid))
            raise UnfitRowsError(
                path, f"column {field.name!r} is not nullable, row {row} is null; fill it or leave it out"
            )


def encode_body(layout: Layout, frame: NewFrame, coder: SegmentCoder) -> Body:
    """Lay out checked rows; texts new to the segment become part of the frame."""
    columns, size, null_bits = frame.columns, frame.size, layout.null_bits
    if isinstance(columns, Pack):
        return columns.body(frame.start, size, coder)
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
        # A view costs more than a copy of few bytes.
        parts.append(values.tobytes() if nbytes <= _SMALL else np.ascontiguousarray(values).data)
        if nbytes % 8:
            parts.append(PADDING[nbytes % 8])
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
) -> bytes:
    """Return the header that makes a body a frame."""
    data, nulls, delta = body
    length = FRAME_BYTES + len(data)
    covered = COVERED.pack(kind, 0, rows, length, position, arrival, producer, sequence, *stamp, nulls, delta)
    return CHECKED.pack(FRAME_MAGIC, zlib.crc32(data, zlib.crc32(covered))) + covered
