"""Slices of time: each is sorted and written by one task, to which its rows travel as Arrow IPC."""

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
class SlicedStream:
    """A stream whose time is divided into slices of equal length."""

    name: str
    schema: pa.Schema
    event_time: str
    """The column by which rows are sorted."""
    begin: int
    """Start of the stream's time, in microseconds since 1970."""
    end: int
    """End of the stream's time, exclusive."""
    slices: int
    slice_rows: int
    """About how many rows a slice has."""
    first_slice: int
    """The number of its first slice; the slices of all streams of a job are numbered consecutively."""

    @property
    def width(self) -> int:
        """Length of a slice in microseconds."""
        return max(-(-(self.end - self.begin) // self.slices), 1)

    def times(self, rows: pa.Table) -> Times:
        """Return the event times of rows, in microseconds."""
        times: Times = pc.cast(rows.column(self.event_time), pa.int64()).to_numpy()
        return times

    def split(self, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """Yield each slice that has rows, by number; rows outside of the stream's time are left out."""
        times = self.times(rows)
        inside = (times >= self.begin) & (times < self.end)
        numbers = np.where(inside, (times - self.begin) // self.width, -1)
        if (numbers != numbers[:1]).any():
            order = np.argsort(numbers, kind="stable")
            rows, numbers = rows.take(order), numbers[order]
        for number, begin, end in runs(numbers):
            if number >= 0:
                yield self.first_slice + number, rows.slice(begin, end - begin)


def assign_tasks(streams: Sequence[SlicedStream], tasks: int) -> list[int]:
    """Return the task of each slice of a job, such that all tasks get about the same number of rows."""
    sizes = [stream.slice_rows for stream in streams for _ in range(stream.slices)]
    loads = [(0, task) for task in range(tasks)]
    assigned = [0] * len(sizes)
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        rows, assigned[number] = loads[0]
        heapq.heapreplace(loads, (rows + sizes[number], assigned[number]))
    return assigned


def runs(values: Times) -> Iterator[tuple[int, int, int]]:
    """Yield each distinct value of a sorted array with the bounds of its run."""
    starts = np.flatnonzero(values[1:] != values[:-1]) + 1
    bounds = [0, *starts.tolist(), len(values)] if len(values) else []
    for begin, end in pairwise(bounds):
        yield int(values[begin]), begin, end


def to_ipc(rows: pa.Table) -> bytes:
    """Encode rows as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows.combine_chunks())
    return bytes(sink.getvalue())


def from_ipc(encoded: bytes) -> pa.Table:
    """Decode the rows of an Arrow IPC stream."""
    return pa.ipc.open_stream(encoded).read_all()
