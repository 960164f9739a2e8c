"""Clocks for tests: one that only advances on request, and one that every look advances."""

from __future__ import annotations


class ManualClock:
    """Nanoseconds since 1970, advanced by hand; both clocks of the Clock protocol agree until a step."""

    def __init__(self, now: int = 1_700_000_000_000_000_000) -> None:
        self._monotonic = now
        self._offset = 0

    def now(self) -> int:
        """Return the time it was set to."""
        return self._monotonic + self._offset

    def monotonic(self) -> int:
        """Return the time it was advanced to, whatever the steps."""
        return self._monotonic

    def advance(self, *, seconds: float = 0, nanoseconds: int = 0) -> None:
        """Move on."""
        self._monotonic += int(seconds * 1_000_000_000) + nanoseconds

    def step(self, *, seconds: float) -> None:
        """Set the wall clock ahead, or back if negative; the monotonic clock does not change."""
        self._offset += int(seconds * 1_000_000_000)


class TickingClock(ManualClock):
    """A clock of which every look at the monotonic time takes a while, like that of a busy machine."""

    def __init__(self, tick: int) -> None:
        """`tick` is how long a look takes (ns)."""
        super().__init__()
        self.tick = tick

    def monotonic(self) -> int:
        """Return the time after this look."""
        self.advance(nanoseconds=self.tick)
        return self.now()
