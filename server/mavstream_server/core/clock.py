"""Clocks: passed to the code that needs the time, so that tests and simulations control it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A clock; all times are in nanoseconds."""

    def now(self) -> int:
        """Return the UTC time since 1970, for timestamps."""

    def monotonic(self) -> int:
        """Return a monotonic time, for durations."""


class OffsetClock:
    """The monotonic clock plus an offset (ns) that another process determines.

    The monotonic clock is the same in all processes of a machine.
    """

    monotonic = staticmethod(time.perf_counter_ns)

    def __init__(self) -> None:
        self.offset = time.time_ns() - time.perf_counter_ns()

    def now(self) -> int:
        """Return the UTC time since 1970."""
        return time.perf_counter_ns() + self.offset


class SystemClock:
    """The clocks of the operating system."""

    now = staticmethod(time.time_ns)
    monotonic = staticmethod(time.perf_counter_ns)
