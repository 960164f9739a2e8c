"""Slices of time, of which one task sorts and writes each; rows travel there as packed columns."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Times = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sliced:
    """A stream that is cut into slices."""

    name: str
    schema: pa.Schema
    time: str
    """The column that tells when a row happened."""
    begin: int
    end: int
    slices: int
    slice_rows: int
    """About how many rows a slice has."""
    first: int
    """The number of its first slice; the slices of all streams of a job are numbered through."""

    @property
    def width(self) -> int:
        """Microseconds of a slice."""
        return max(-(-(self.end - self.begin) // self.slices), 1)

    def times(self, rows: pa.Table) -> Times:
        """Return when rows happened, in microseconds."""
        found: Times = pc.cast(rows.column(self.time), pa.int64()).to_numpy()
        return found

    def cut(self, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """Give the rows of each slice that has some, by its number; what lies outside is left out."""
        times = self.times(rows)
        inside = (times >= self.begin) & (times < self.end)
        numbers = np.where(inside, (times - self.begin) // self.width, -1)
        if (numbers != numbers[:1]).any():
            order = np.argsort(numbers, kind="stable")
            rows, numbers = rows.take(order), numbers[order]
        for number, begin, end in runs(numbers):
            if number >= 0:
                yield self.first + number, rows.slice(begin, end - begin)


def tasks_of(streams: Sequence[Sliced], count: int) -> list[int]:
    """Return which of so many tasks writes each slice of a job, so that all have about as much to do."""
    sizes = [stream.slice_rows for stream in streams for _ in range(stream.slices)]
    least = [(0, task) for task in range(count)]
    found = [0] * len(sizes)
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        rows, found[number] = least[0]
        heapq.heapreplace(least, (rows + sizes[number], found[number]))
    return found


def runs(values: Times) -> Iterator[tuple[int, int, int]]:
    """Give each of some sorted values once, with where it begins and ends."""
    starts = np.flatnonzero(values[1:] != values[:-1]) + 1
    bounds = [0, *starts.tolist(), len(values)] if len(values) else []
    for begin, end in pairwise(bounds):
        yield int(values[begin]), begin, end


def pack(rows: pa.Table) -> bytes:
    """Return rows as one value."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows.combine_chunks())
    return bytes(sink.getvalue())


def unpacked(value: bytes) -> pa.Table:
    """Return the rows of a pack."""
    return pa.ipc.open_stream(value).read_all()
