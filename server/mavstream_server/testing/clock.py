"""A clock for tests that only advances on request."""

from __future__ import annotations


class ManualClock:
    """Nanoseconds since 1970, advanced by hand; both clocks of the Clock protocol are the same."""

    def __init__(self, now: int = 1_700_000_000_000_000_000) -> None:
        self._now = now

    def now(self) -> int:
        """Return the time it was set to."""
        return self._now

    monotonic = now

    def advance(self, *, seconds: float = 0, nanoseconds: int = 0) -> None:
        """Move on."""
        self._now += int(seconds * 1_000_000_000) + nanoseconds
