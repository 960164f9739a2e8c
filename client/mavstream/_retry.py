"""How often, and after which pauses, something is tried again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retry:
    """Pauses that double, with jitter, so that many clients do not come back at the same moment."""

    attempts: int = 4
    """How often a request is sent at most; 1 for no repetition."""
    first: float = 0.1
    """The longest pause ahead of the second attempt, in seconds."""
    most: float = 5.0
    """No pause is longer, in seconds, unless the server asks for it."""
    patience: float = 60.0
    """How long a feed or a subscription tries to reach a server that is gone, in seconds."""

    def pause(self, failures: int, chance: float) -> float:
        """Return the pause after so many failures (1, 2, ...); `chance` is drawn from 0 to 1."""
        longest = min(self.most, self.first * 2.0 ** min(failures - 1, 32))
        return longest * (1 + chance) / 2


DEFAULT_RETRY = Retry()
