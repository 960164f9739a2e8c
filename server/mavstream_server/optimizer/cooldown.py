"""Holds: what had to be done again soon after it was taken back is not taken back so soon the next time."""

from __future__ import annotations

_LONGEST = 16  # times the time in which needing it again counts as soon


class Cooldown:
    """How long a rule keeps what it has done. It doubles each time that giving it back proved wrong."""

    def __init__(self) -> None:
        self.until = 0.0
        """Seconds, on the clock of the decisions."""
        self._relaxed: float | None = None
        self._length = 0.0

    def relaxed(self, now: float) -> None:
        """Something was taken back."""
        self._relaxed = now

    def needed_again(self, now: float, soon: float) -> None:
        """The rule has acted: if that is soon after it took something back, it holds on for longer."""
        if self._relaxed is None:
            return
        if now - self._relaxed > soon:
            self._length = 0.0
            return
        self._length = min(max(soon, 2 * self._length), _LONGEST * soon)
        self._relaxed, self.until = None, now + self._length
