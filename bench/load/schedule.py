"""A schedule of readings, fixed before the load starts: what is due when, and in which frame it travels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from bench.load.producer import arrow_message
from bench.load.websocket import encode
from bench.workload.readings import BEGIN, arrow_readings, stamped

_KEPT_ROWS = 200_000
"""Readings repeat after so many; their times do not."""


@dataclass(frozen=True)
class Schedule:
    """Poisson arrivals at given rates, in frames that are sent at every tick.

    Event times are due times, as if the schedule had begun at `BEGIN`. So messages are encoded before
    anybody knows when it begins.
    """

    pieces: tuple[tuple[float, float], ...]
    """Rates (tuples/s), and for how many seconds each."""
    tick: float
    """Seconds between two frames; a row travels in the first frame that is sent when it is due."""
    seed: int = 4

    @classmethod
    def steady(cls, rate: float, seconds: float, tick: float, seed: int = 4) -> Schedule:
        """Return a schedule at one rate."""
        return cls(((rate, seconds),), tick, seed)

    @property
    def seconds(self) -> float:
        """The length of the schedule."""
        return sum(seconds for _, seconds in self.pieces)

    @cached_property
    def dues(self) -> np.ndarray:
        """When each row is due, in microseconds since the schedule began."""
        random, begin, dues = np.random.default_rng(self.seed), 0.0, []
        for rate, seconds in self.pieces:
            # Given their number, arrivals of a Poisson process are uniform.
            dues.append(np.sort(random.uniform(begin, begin + seconds, int(rate * seconds))))
            begin += seconds
        return (np.concatenate(dues) * 1e6).astype(np.int64)

    @cached_property
    def _bounds(self) -> np.ndarray:
        """The first row of each frame, and the number of rows; a row for each tick, empty frames included."""
        ticks = np.arange(1, int(np.ceil(self.seconds / self.tick)) + 1) * (self.tick * 1e6)
        return np.concatenate([[0], np.searchsorted(self.dues, ticks, "right")])

    @cached_property
    def frame_of_row(self) -> np.ndarray:
        """The number of the frame that each row travels in."""
        sizes = np.diff(self._bounds)
        sizes = sizes[sizes > 0]
        return np.repeat(np.arange(len(sizes)), sizes)

    @cached_property
    def frame_dues(self) -> np.ndarray:
        """When each frame is due, in seconds since the schedule began."""
        return (np.flatnonzero(np.diff(self._bounds)) + 1) * self.tick

    @cached_property
    def frame_stops(self) -> np.ndarray:
        """How many rows have been sent with each frame."""
        return self._bounds[1:][np.diff(self._bounds) > 0]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of each frame."""
        kept, start = arrow_readings(_KEPT_ROWS, self.seed), 0
        for stop in self.frame_stops.tolist():
            yield stamped(_cycled(kept, start, stop - start), BEGIN + self.dues[start:stop])
            start = stop

    def messages(self, stream: str) -> Iterator[bytes]:
        """Yield the frames as they travel, masked and all."""
        for sequence, batch in enumerate(self.batches(), 1):
            yield encode(arrow_message(stream, sequence, batch))


def _cycled(kept: pa.RecordBatch, start: int, size: int) -> pa.RecordBatch:
    parts, offset = [], start % kept.num_rows
    while size:
        parts.append(kept.slice(offset, size))
        size -= parts[-1].num_rows
        offset = 0
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)
