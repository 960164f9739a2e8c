"""Cooldowns: delay reverting an action that was needed again soon after it was last reverted."""

from __future__ import annotations

_MAX_FACTOR = 16  # limit of the cooldown, as a multiple of `soon`


class Cooldown:
    """How long a rule retains its actions before reverting them; doubles each time reverting proved wrong."""

    def __init__(self) -> None:
        self.until = 0.0
        """End of the cooldown, in seconds on the optimizer's clock."""
        self._relaxed: float | None = None
        self._length = 0.0

    def relaxed(self, now: float) -> None:
        """Record that an action was reverted."""
        self._relaxed = now

    def needed_again(self, now: float, soon: float) -> None:
        """Record that the rule acted again; within `soon` seconds of a revert, the cooldown grows."""
        if self._relaxed is None:
            return
        if now - self._relaxed > soon:
            self._length = 0.0
            return
        self._length = min(max(soon, 2 * self._length), _MAX_FACTOR * soon)
        self._relaxed, self.until = None, now + self._length
