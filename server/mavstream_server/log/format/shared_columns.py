"""Packs: columns that many small frames are cut from, checked and turned into bytes once for all of them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from mavstream_protocol.schema import Schema
from mavstream_server.columns.column import Array
from mavstream_server.columns.plain import Plain
from mavstream_server.log.format.coding import SegmentCoder
from mavstream_server.log.format.layout import FRAME_BYTES, PADDING, Body, expected_columns
from mavstream_server.log.format.texts import encode_texts

_CODE = 4  # bytes of a text's code


class SharedColumns:
    """Rows without nulls of streams with one schema. Two rows are cut from it as two slices of bytes a
    column, which takes a third of the time that two slices of arrays do.
    """

    def __init__(self, schema: Schema, columns: Sequence[Plain], size: int) -> None:
        """Take the columns of `plain_columns`."""
        self.schema = schema
        self.expected = expected_columns(schema)
        self.size = size
        self._columns = columns
        self.data = [b"" if isinstance(column, list) else column.tobytes() for column in columns]
        """The values of each column that is none of texts, as bytes."""
        self.widths = [0 if isinstance(column, list) else column.itemsize for column in columns]
        """Bytes of a value of each column, 0 where they are texts."""
        self.texts = {i: column for i, column in enumerate(columns) if isinstance(column, list)}
        self._times: dict[str, list[int]] = {}

    def values(self, name: str) -> Array:
        """Return the values of a column that is none of texts."""
        column = self._columns[self.schema.names.index(name)]
        assert not isinstance(column, list)
        return column

    def largest(self, name: str, start: int, size: int) -> int:
        """Return the largest value of a column of integers in some rows."""
        times = self._times.get(name)
        if times is None:
            times = self._times[name] = self.values(name).tolist()
        return max(times[start : start + size])


class RowSlice(NamedTuple):
    """Some rows of a pack, and when they came."""

    pack: SharedColumns
    start: int
    size: int
    arrival: int
    """In ns."""


def body_of_cuts(cuts: Sequence[RowSlice], coder: SegmentCoder) -> Body:
    """Lay out the rows of all cuts as one frame; texts new to the segment become part of it."""
    parts: list[bytes] = []
    rows = sum([cut.size for cut in cuts])
    for index, width in enumerate(cuts[0].pack.widths):
        if width:
            parts += [
                pack.data[index][start * width : (start + size) * width] for pack, start, size, _ in cuts
            ]
        else:
            texts = [
                text for pack, start, size, _ in cuts for text in pack.texts[index][start : start + size]
            ]
            parts.append(array("i", coder.codes_of(index, texts)).tobytes())
        if width != 8:
            parts.append(PADDING[rows * (width or _CODE) % 8])
    delta = 0
    if coder.dictionaries and (added := coder.take_added()):
        delta = FRAME_BYTES + sum(map(len, parts))
        parts.append(encode_texts(added))
    return Body(b"".join(parts), 0, delta)


def largest_of_cuts(cuts: Sequence[RowSlice], name: str) -> int:
    """Return the largest value of a column of integers in all of them."""
    return max([pack.largest(name, start, size) for pack, start, size, _ in cuts])


def came_apart(cuts: Sequence[RowSlice]) -> bool:
    """Whether not all of them came at the same time: then the frame tells of each row when it did."""
    return cuts[0].arrival != cuts[-1].arrival


def stamps_of_cuts(cuts: Sequence[RowSlice], floor: int) -> list[int]:
    """Return when each row came; times that go back are raised to the one before, or to the floor."""
    stamps: list[int] = []
    for _, _, size, arrival in cuts:
        floor = max(floor, arrival)
        stamps += [floor] * size
    return stamps
