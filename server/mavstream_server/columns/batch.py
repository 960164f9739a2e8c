"""Batches: the rows and marks that operators pass to each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mavstream_server.columns.column import Column, Ints, concatenate
from mavstream_server.columns.pieces import Steps, finished, fits, pieces, taken

BEGIN_OF_TIME = -(1 << 63)
END_OF_TIME = (1 << 63) - 1


class Mark(NamedTuple):
    """A watermark, gap or end of stream after the last row of a batch.

    Times are in microseconds. A mark never lowers the watermark.
    """

    watermark: int = BEGIN_OF_TIME
    """No later row is before this time, except for late rows."""
    arrival: int = 0
    """When the mark was appended to the log, in nanoseconds: latency of results it triggers starts here."""
    gap: int | None = None
    """Rows up to this time may be missing before this mark (after a start or a pause).

    Windows that they could belong to are incomplete.
    """
    end: bool = False
    """Whether the stream ends with this mark."""
    since: int = END_OF_TIME
    """The time from which windows count for a one-time query; by default unknown or not needed."""


class Batch:
    """Rows as columns, in stream order, and the mark after them. Immutable by convention.

    `row_watermark` is the watermark directly before each row: a row is late for windows that ended at or
    before it. It never decreases within a batch, is `time` itself where rows are known to be in order, and
    None for results of windows and joins, which are never late.
    `time` is that of each row; `position` is None if no operator downstream needs it.
    """

    __slots__ = ("_nbytes", "arrival", "columns", "mark", "position", "row_watermark", "size", "time")

    def __init__(
        self,
        columns: Mapping[str, Column],
        size: int,
        arrival: Ints,
        *,
        time: Ints | None = None,
        position: Ints | None = None,
        row_watermark: Ints | None = None,
        mark: Mark | None = None,
    ) -> None:
        self.columns = columns
        self.size = size
        self.arrival = arrival
        self.time = time
        self.position = position
        self.row_watermark = row_watermark
        self.mark = mark
        self._nbytes = -1

    def __len__(self) -> int:
        return self.size

    @property
    def nbytes(self) -> int:
        """Bytes of the rows; computed once, because every queue on the way asks for it."""
        if self._nbytes >= 0:
            return self._nbytes
        total = self.arrival.nbytes
        time, watermark = self.time, self.row_watermark
        # Of rows in order the watermarks are the times, the same array.
        for array in (time, self.position, None if watermark is time else watermark):
            if array is not None:
                total += array.nbytes
        for column in self.columns.values():
            total += column.values.nbytes
            if column.valid is not None:
                total += column.valid.nbytes
        self._nbytes = total
        return total

    def take(self, rows: Ints, names: Sequence[str] | None = None) -> Batch:
        """Return the given rows and the mark, with only the named columns if names are given."""
        columns, time, watermark = self.columns, self.time, self.row_watermark
        taken, taken_columns = None, {}
        for name in columns if names is None else names:
            column = columns[name]
            taken_columns[name] = of_rows = column.take(rows)
            if column.values is time:  # the column of event times is not taken twice
                taken = of_rows.values
        if taken is None and time is not None:
            taken = time.take(rows)
        if watermark is not None:
            watermark = taken if watermark is time else watermark.take(rows)
        return Batch(
            taken_columns,
            len(rows),
            self.arrival.take(rows),
            time=taken,
            position=None if self.position is None else self.position.take(rows),
            row_watermark=watermark,
            mark=self.mark,
        )

    def taking(self, rows: Ints) -> Steps[Batch]:
        """Return the given rows and the mark, in steps."""
        if fits(len(rows)):
            return self.take(rows)
        columns = {}
        for name, column in self.columns.items():
            values = yield from taken(column.values, rows)
            valid = None if column.valid is None else (yield from taken(column.valid, rows))
            columns[name] = Column(values, valid, column.dictionary)
        time, watermark = self.time, self.row_watermark
        times = None if time is None else (yield from taken(time, rows))
        if watermark is not None:
            watermark = times if watermark is time else (yield from taken(watermark, rows))
        return Batch(
            columns,
            len(rows),
            (yield from taken(self.arrival, rows)),
            time=times,
            position=None if self.position is None else (yield from taken(self.position, rows)),
            row_watermark=watermark,
            mark=self.mark,
        )

    def parts(self) -> Iterator[Batch]:
        """Return consecutive rows, as many as are processed in one piece; the last part has the mark."""
        for piece in pieces(self.size):
            yield self._slice(piece.start, piece.stop, self.mark if piece.stop == self.size else None)

    def split(self, count: int) -> tuple[Batch, Batch]:
        """Split after `count` rows; the second batch gets the mark."""
        return self._slice(0, count, None), self._slice(count, self.size, self.mark)

    def _slice(self, start: int, stop: int, mark: Mark | None) -> Batch:
        watermark = self.row_watermark
        time = None if self.time is None else self.time[start:stop]
        if watermark is not None:
            watermark = time if watermark is self.time else watermark[start:stop]
        return Batch(
            {name: column.slice(start, stop) for name, column in self.columns.items()},
            stop - start,
            self.arrival[start:stop],
            time=time,
            position=None if self.position is None else self.position[start:stop],
            row_watermark=watermark,
            mark=mark,
        )

    def narrowed(self, names: Sequence[str]) -> Batch:
        """Return the same rows with the named columns only."""
        return self.with_columns({name: self.columns[name] for name in names}, self.mark)

    def with_columns(self, columns: Mapping[str, Column], mark: Mark | None) -> Batch:
        """Return the same rows with other columns and another mark."""
        return Batch(
            columns,
            self.size,
            self.arrival,
            time=self.time,
            position=self.position,
            row_watermark=self.row_watermark,
            mark=mark,
        )


_NO_ROWS: Ints = np.empty(0, dtype=np.int64)


def mark_only(mark: Mark) -> Batch:
    """Return a batch with a mark and no rows."""
    return Batch({}, 0, _NO_ROWS, mark=mark)


def concatenate_batches(batches: Sequence[Batch]) -> Batch:
    """Concatenate batches with the same columns; the result has the last mark."""
    return finished(concatenating(batches))


def concatenating(batches: Sequence[Batch]) -> Steps[Batch]:
    """Do the same in steps, one for each column."""
    if len(batches) == 1:
        return batches[0]
    columns = {}
    for name in batches[0].columns:
        columns[name] = concatenate([batch.columns[name] for batch in batches])
        yield
    time = _joined([batch.time for batch in batches])
    yield
    ordered = all(_continues(one, two) for one, two in pairwise(batches))
    return Batch(
        columns,
        sum([batch.size for batch in batches]),
        np.concatenate([batch.arrival for batch in batches]),
        time=time,
        position=_joined([batch.position for batch in batches]),
        row_watermark=time if ordered else _joined([batch.row_watermark for batch in batches]),
        mark=batches[-1].mark,
    )


def _continues(one: Batch, two: Batch) -> bool:
    """Return whether the rows of both batches are known to be in order of time, one batch after the other."""
    before, after = one.time, two.time
    if one.row_watermark is not before or two.row_watermark is not after:
        return False
    return before is None or after is None or not two.size or not one.size or bool(before[-1] <= after[0])


def _joined(arrays: Sequence[Ints | None]) -> Ints | None:
    """Concatenate arrays, unless one is missing."""
    present = [array for array in arrays if array is not None]
    return np.concatenate(present) if len(present) == len(arrays) else None
