"""Recent rows: the latest few rows of one side of a join, compared one by one instead of being sorted."""

from __future__ import annotations

import numpy as np

from mavstream_server.columns.batch import Batch, concatenate_batches
from mavstream_server.columns.column import Column, Ints

MOST_ROWS = 1024
"""Rows from which on sorting them pays off."""
_MOST_COMPARISONS = 1 << 16


class RecentRows:
    """Rows in the order of their arrival, in buffers that small batches are appended to.

    A few rows more are stored and compared in a fraction of the time that merging sorted runs takes.
    """

    __slots__ = ("_codes", "_rows", "_size", "earliest", "latest")

    def __init__(self) -> None:
        self._size = 0
        self._rows: Batch | None = None  # buffers, of which the first `_size` rows are in use
        self._codes: Ints = _NONE
        self.earliest = self.latest = 0

    def __len__(self) -> int:
        return self._size

    @property
    def rows(self) -> Batch:
        """The rows."""
        assert self._rows is not None
        return _head(self._rows, self._size)

    @property
    def codes(self) -> Ints:
        """The codes of the rows' keys."""
        return self._codes[: self._size]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return 0 if self._rows is None else self._rows.nbytes + self._codes.nbytes

    def append(self, rows: Batch, codes: Ints) -> None:
        """Append rows with their codes; there must be at least one."""
        assert rows.time is not None
        first, last = int(rows.time.min()), int(rows.time.max())
        if self._size:
            first, last = min(first, self.earliest), max(last, self.latest)
        self.earliest, self.latest = first, last
        stop = self._size + rows.size
        if self._rows is None or stop > len(self._codes) or not _write(self._rows, self._size, rows):
            joined = rows if not self._size else concatenate_batches([self.rows, rows])
            self._rows = _with_room(joined, max(2 * stop, 256))
            self._codes = _extended(self.codes, len(self._rows.arrival))
        self._codes[self._size : stop] = codes
        self._size = stop

    def clear(self) -> None:
        """Drop all rows, and the buffers."""
        self._size, self._rows, self._codes = 0, None, _NONE

    def expire(self, since: int) -> None:
        """Drop the rows before a time (us) once they cover more than half of the time span."""
        if not self._size or 2 * (since - self.earliest) <= self.latest - self.earliest + 1:
            return
        rows, codes = self.rows, self.codes
        self._size = 0
        assert rows.time is not None
        kept = np.flatnonzero(rows.time >= since)
        if len(kept):
            self.append(rows.take(kept), codes.take(kept))

    def recode(self, mapping: Ints) -> None:
        """Replace the codes of the keys."""
        self._codes[: self._size] = mapping.take(self.codes)

    def comparable_with(self, rows: int) -> bool:
        """Return whether comparing all rows with so many others takes less time than sorting them."""
        return rows * self._size <= _MOST_COMPARISONS

    def partners(self, codes: Ints, times: Ints, earlier: int, later: int) -> tuple[Ints, Ints] | None:
        """Return pairs (asking row, row of this one) with equal codes and near times; None if there are none.

        Rows of this side may be at most `earlier` us before or `later` us after the asking row.
        """
        equal = np.flatnonzero(codes[:, None] == self.codes)
        if not len(equal):
            return None
        asked, found = np.divmod(equal, self._size)
        assert self._rows is not None
        assert self._rows.time is not None
        distance = self._rows.time.take(found) - times.take(asked)
        near = np.flatnonzero((distance >= -earlier) & (distance <= later))
        if not len(near):
            return None
        return asked.take(near), found.take(near)


_NONE: Ints = np.empty(0, dtype=np.int64)


def _head(rows: Batch, size: int) -> Batch:
    return Batch(
        {name: column.slice(0, size) for name, column in rows.columns.items()},
        size,
        rows.arrival[:size],
        time=None if rows.time is None else rows.time[:size],
        position=None if rows.position is None else rows.position[:size],
    )


def _with_room(rows: Batch, room: int) -> Batch:
    """Return a copy of the rows in buffers with room for so many."""
    columns = {
        name: Column(
            _extended(column.values, room),
            None if column.valid is None else _extended(column.valid, room),
            column.dictionary,
        )
        for name, column in rows.columns.items()
    }
    return Batch(
        columns,
        room,
        _extended(rows.arrival, room),
        time=None if rows.time is None else _extended(rows.time, room),
        position=None if rows.position is None else _extended(rows.position, room),
    )


def _extended(values: np.ndarray, room: int) -> np.ndarray:
    extended = np.empty(room, dtype=values.dtype)
    extended[: len(values)] = values
    return extended


def _write(buffers: Batch, start: int, rows: Batch) -> bool:
    """Write rows into buffers; returns False if a column has nulls or texts that do not fit there."""
    given = rows.columns
    for name, buffer in buffers.columns.items():
        column = given[name]
        if column.dictionary is not buffer.dictionary or (column.valid is None) != (buffer.valid is None):
            return False
    stop = start + rows.size
    for name, buffer in buffers.columns.items():
        column = given[name]
        buffer.values[start:stop] = column.values
        if buffer.valid is not None:
            buffer.valid[start:stop] = column.valid
    buffers.arrival[start:stop] = rows.arrival
    for target, values in ((buffers.time, rows.time), (buffers.position, rows.position)):
        if target is not None and values is not None:
            target[start:stop] = values
    return True
