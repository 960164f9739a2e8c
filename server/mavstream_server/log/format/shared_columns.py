"""Shared columns: many small frames are slices of them, checked and encoded once for all."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mavstream_protocol.schema import Schema
from mavstream_server.columns.column import Array, Ints
from mavstream_server.columns.plain import Plain
from mavstream_server.log.format.coding import SegmentCoder
from mavstream_server.log.format.layout import FRAME_BYTES, PADDING, Body, expected_columns
from mavstream_server.log.format.texts import encode_texts

_CODE = 4  # bytes of a text's code
_FEW = 16  # rows


class SharedColumns:
    """Rows without nulls of several streams with the same schema, from one message.

    Frames are slices of each column's encoded bytes, which takes a third of the time of slicing arrays.
    """

    def __init__(self, schema: Schema, columns: Sequence[Plain], size: int) -> None:
        """Wrap columns as `plain_columns` returns them."""
        self.schema = schema
        self.expected = expected_columns(schema)
        self.size = size
        self._columns = columns
        self.data = [b"" if isinstance(column, list) else column.tobytes() for column in columns]
        """The values of each column as bytes; empty for text columns."""
        self.widths = [0 if isinstance(column, list) else column.itemsize for column in columns]
        """Bytes per value of each column; 0 for text columns."""
        self.texts = {i: column for i, column in enumerate(columns) if isinstance(column, list)}
        self._times: dict[str, list[int]] = {}

    def values(self, name: str) -> Array:
        """Return the values of a column that does not hold texts."""
        column = self._columns[self.schema.names.index(name)]
        assert not isinstance(column, list)
        return column

    def largest(self, name: str, start: int, size: int) -> int:
        """Return the largest value of an integer column in `size` rows from `start`."""
        times = self._times.get(name)
        if times is None:
            times = self._times[name] = self.values(name).tolist()
        return max(times[start : start + size])


class RowSlice(NamedTuple):
    """Consecutive rows of shared columns, and their arrival time."""

    columns: SharedColumns
    start: int
    size: int
    arrival: int
    """Nanoseconds."""


def body_of_slices(slices: Sequence[RowSlice], coder: SegmentCoder) -> Body:
    """Encode the rows of all slices as the body of one frame, with the texts that are new to the segment."""
    parts: list[bytes] = []
    rows = sum([each.size for each in slices])
    for index, width in enumerate(slices[0].columns.widths):
        if width:
            parts += [
                shared.data[index][start * width : (start + size) * width]
                for shared, start, size, _ in slices
            ]
        else:
            texts = [
                text
                for shared, start, size, _ in slices
                for text in shared.texts[index][start : start + size]
            ]
            parts.append(array("i", coder.codes_of(index, texts)).tobytes())
        if width != 8:
            parts.append(PADDING[rows * (width or _CODE) % 8])
    delta = 0
    if coder.dictionaries and (added := coder.take_added()):
        delta = FRAME_BYTES + sum(map(len, parts))
        parts.append(encode_texts(added))
    return Body(b"".join(parts), 0, delta)


def largest(times: Ints) -> int:
    """Return the largest of some times."""
    # For few values Python's max takes a third of the time.
    return max(times.tolist()) if len(times) <= _FEW else int(np.maximum.reduce(times))


def largest_of_slices(slices: Sequence[RowSlice], name: str) -> int:
    """Return the largest value of an integer column in all slices."""
    return max([shared.largest(name, start, size) for shared, start, size, _ in slices])


def arrivals_differ(slices: Sequence[RowSlice]) -> bool:
    """Return whether the slices have several arrival times: then the frame stores one for each row."""
    return slices[0].arrival != slices[-1].arrival


def arrivals_of_slices(slices: Sequence[RowSlice], floor: int) -> list[int]:
    """Return the arrival time of each row, made never to decrease and never to be below `floor`."""
    stamps: list[int] = []
    for _, _, size, arrival in slices:
        floor = max(floor, arrival)
        stamps += [floor] * size
    return stamps
