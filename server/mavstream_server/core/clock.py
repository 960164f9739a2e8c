"""Clocks: the time is handed in, never taken."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What tells the time. Nanoseconds."""

    def now(self) -> int:
        """Return UTC since 1970: for stamps."""

    def monotonic(self) -> int:
        """Return a time that never falls: for how long things take."""


class SystemClock:
    """The machine's clocks."""

    now = staticmethod(time.time_ns)
    monotonic = staticmethod(time.perf_counter_ns)
