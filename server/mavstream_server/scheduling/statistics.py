"""Statistics of an operator, measured while it runs: cost, selectivity, tuple size."""

from __future__ import annotations

from typing import NamedTuple

PUBLISH_EVERY = 200
"""Tuples between two publications; policies see constant values in between."""
_PUBLISH_CALLS = 8
"""Calls between two publications where each call takes many tuples. Values published for every train would
mostly follow the noise of the machine, and everything derived from them would be recomputed for that."""
_SMOOTHING = 0.25
"""Weight of the newest period: high enough to follow a change within a few periods."""


class Statistics(NamedTuple):
    """Published statistics of an operator. Times are nanoseconds, sizes are bytes."""

    cost_per_call: float = 10_000.0
    cost_per_tuple: float = 100.0
    selectivity: float = 1.0
    """Tuples out per tuple in."""
    tuple_size: float = 64.0
    """Size of an output tuple."""
    tuples: int = 0
    """Tuples measured so far; 0 means that the values are declared or defaults."""
    input_size: float = 64.0
    """Size of a tuple that comes from outside the view: what the source of a leaf emits."""


class StatisticsCollector:
    """Collects runs of one operator; publishes smoothed values every 200 tuples, or every eight trains."""

    __slots__ = ("_bytes_out", "_calls", "_elapsed", "_fed", "_rows_in", "_rows_out", "published")

    def __init__(self, declared: Statistics | None = None) -> None:
        self.published = declared or Statistics()
        # Collected since the last publication; meaningless while `_calls` is 0.
        self._rows_in = self._rows_out = self._bytes_out = self._elapsed = self._calls = 0
        self._fed: tuple[int, int] | None = None  # rows and bytes that had come when that was last measured

    def add(self, rows_in: int, rows_out: int, bytes_out: int, elapsed: int, calls: int) -> bool:
        """Record a run; return whether new values were published."""
        if self._calls:
            rows_in += self._rows_in
            rows_out += self._rows_out
            bytes_out += self._bytes_out
            elapsed += self._elapsed
            calls += self._calls
        if rows_in < PUBLISH_EVERY or (calls < _PUBLISH_CALLS and self.published.tuples):
            self._rows_in, self._rows_out, self._bytes_out = rows_in, rows_out, bytes_out
            self._elapsed, self._calls = elapsed, calls
            return False
        call, cost, selectivity, size, tuples, input_size = self.published
        # The first measured period replaces the defaults, which say nothing about this operator.
        weight = _SMOOTHING if tuples else 1.0
        if rows_out:
            size += weight * (bytes_out / rows_out - size)
        self.published = Statistics(
            call + weight * (elapsed / (calls or 1) - call),
            cost + weight * (elapsed / rows_in - cost),
            selectivity + weight * (rows_out / rows_in - selectivity),
            size,
            tuples + rows_in,
            input_size,
        )
        self._calls = 0
        return True

    def measure_input(self, rows: int, nbytes: int) -> None:
        """Publish the size of tuples that come from outside; `rows` and `nbytes` count since the start."""
        known_rows, known_bytes = self._fed or (0, 0)
        if rows <= known_rows:
            return
        size, weight = self.published.input_size, 1.0 if self._fed is None else _SMOOTHING
        size += weight * ((nbytes - known_bytes) / (rows - known_rows) - size)
        self.published = self.published._replace(input_size=size)
        self._fed = rows, nbytes
