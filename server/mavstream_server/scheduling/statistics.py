"""Statistics: what an operator costs and gives, measured while it runs."""

from __future__ import annotations

from typing import NamedTuple

PUBLISH_EVERY = 200
"""Tuples between two publications: policies see figures that stand still in between."""
_PUBLISH_CALLS = 8
"""Calls between two, where each takes many tuples at once: figures that follow every train mostly follow the
noise of the machine, and what is worked out from them would be worked out again for that."""
_SMOOTHING = 0.25
"""Weight of the newest period: high enough to follow a change within a few periods."""


class Statistics(NamedTuple):
    """Published figures of an operator. Times are nanoseconds, sizes bytes."""

    cost_per_call: float = 10_000.0
    cost_per_tuple: float = 100.0
    selectivity: float = 1.0
    """Tuples out per tuple in."""
    tuple_size: float = 64.0
    """Of an output tuple."""
    tuples: int = 0
    """Measured so far; 0 says that the figures are declared or defaults."""


class StatisticsCollector:
    """Gathers runs of one operator; publishes smoothed figures every 200 tuples, or every eight trains."""

    __slots__ = ("_bytes_out", "_calls", "_elapsed", "_rows_in", "_rows_out", "published")

    def __init__(self, declared: Statistics | None = None) -> None:
        self.published = declared or Statistics()
        # What was gathered since the last publication; nothing, if there were no calls.
        self._rows_in = self._rows_out = self._bytes_out = self._elapsed = self._calls = 0

    def add(self, rows_in: int, rows_out: int, bytes_out: int, elapsed: int, calls: int) -> bool:
        """Record a run; returns whether new figures were published."""
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
        call, cost, selectivity, size, tuples = self.published
        # The first measured period replaces the defaults: they say nothing about this operator.
        weight = _SMOOTHING if tuples else 1.0
        if rows_out:
            size += weight * (bytes_out / rows_out - size)
        self.published = Statistics(
            call + weight * (elapsed / (calls or 1) - call),
            cost + weight * (elapsed / rows_in - cost),
            selectivity + weight * (rows_out / rows_in - selectivity),
            size,
            tuples + rows_in,
        )
        self._calls = 0
        return True
