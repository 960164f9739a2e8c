"""Packs: columns that many small frames are parts of, checked and turned into bytes once for all of them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from mavstream_protocol.schema import Schema
from mavstream_server.columns.column import Array
from mavstream_server.columns.plain import Plain
from mavstream_server.log.coding import SegmentCoder
from mavstream_server.log.layout import FRAME_BYTES, PADDING, Body, expected_columns
from mavstream_server.log.texts import encode_texts

_WIDEST = 16  # bytes of a value in a frame, with what pads its column where rows are few


class Pack:
    """Rows without nulls of streams with one schema. A frame of two rows is cut from it as two slices of
    bytes a column, which takes a third of the time that two slices of arrays do.
    """

    def __init__(self, schema: Schema, columns: Sequence[Plain], size: int) -> None:
        """Take the columns of `plain_columns`."""
        self.schema = schema
        self.expected = expected_columns(schema)
        self.size = size
        self.most = FRAME_BYTES + size * (4 + _WIDEST * len(columns))
        """Bytes of any frame that is cut from it, at most."""
        self._columns = columns
        self._data: list[tuple[bytes, int]] = []
        self._texts: dict[int, list[str]] = {}
        for index, column in enumerate(columns):
            if isinstance(column, list):
                self._texts[index] = column
                # Every text as if it were new: four bytes a character, a length, and what stands around.
                self.most += 64 + sum(map(len, column)) * 4 + 4 * size
                self._data.append((b"", 0))
            else:
                self._data.append((column.tobytes(), column.itemsize))
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

    def body(self, start: int, size: int, coder: SegmentCoder) -> Body:
        """Lay out some rows as a frame; texts new to the segment become part of it."""
        stop = start + size
        parts: list[bytes] = []
        for index, (data, width) in enumerate(self._data):
            if width == 8:
                parts.append(data[8 * start : 8 * stop])
                continue
            if width:
                part = data[start * width : stop * width]
            else:
                part = array("i", coder.codes_of(index, self._texts[index][start:stop])).tobytes()
            parts += (part, PADDING[len(part) % 8])
        delta = 0
        if coder.dictionaries and (added := coder.take_added()):
            delta = FRAME_BYTES + sum(map(len, parts))
            parts.append(encode_texts(added))
        return Body(b"".join(parts), 0, delta)
