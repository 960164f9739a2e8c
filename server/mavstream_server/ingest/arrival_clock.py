"""The clock of arrival times: it runs with the monotonic clock and follows the wall clock slowly.

The wall clock can be set, and can be wrong. Arrival times must not go back, and windows on arrival time must
neither stand still nor be skipped because of it. So arrival time is the monotonic clock plus an offset. The
offset approaches that of the wall clock by at most 5 % of the time that passes; only a jump ahead is followed
at once, up to `max_step`. After a restart it continues from the last arrival time in the logs, even if the
wall clock is behind it.
"""

from __future__ import annotations

import logging

from mavstream_server.core.clock import Clock

_LOG = logging.getLogger("mavstream.clock")

_SLEW = 20
"""The offset changes by at most one part in so many of the elapsed time."""
_JUMP = 100_000_000
"""A change of the wall clock by more than this against the monotonic clock, in ns, is a jump."""


class ArrivalClock:
    """A Clock whose `now` never goes back and never stands still while the monotonic clock runs.

    Between two calls of `discipline` its time is that of the monotonic clock plus `offset`.
    """

    def __init__(self, clock: Clock, max_step: int) -> None:
        """Start at the wall clock; `max_step` (ns) is how far a single jump ahead is followed at once."""
        self._clock = clock
        self._max_step = max_step
        self.monotonic = clock.monotonic
        self._disciplined = clock.monotonic()
        self._wall_offset = self.offset = clock.now() - self._disciplined
        """Arrival time minus monotonic time, in ns."""
        self._last = 0

    def now(self) -> int:
        """Return the arrival time of what arrives now, UTC in ns."""
        now = self.monotonic() + self.offset
        if now < self._last:  # the offset has become smaller
            return self._last
        self._last = now
        return now

    def at(self, monotonic: int) -> int:
        """Return the arrival time of what arrived at a monotonic time (ns), a moment ago."""
        return monotonic + self.offset

    @property
    def ahead(self) -> int:
        """How far arrival times are ahead of the wall clock, in ns; negative if they are behind."""
        return self.offset - self._wall_offset

    def not_before(self, arrival: int) -> None:
        """Continue from an arrival time (ns) that is in a log already."""
        behind = arrival - self.now()
        if behind > 0:
            self.offset += behind
            if behind > _JUMP:
                _LOG.warning(
                    "the last arrival time is ahead of the clock; arrival times continue from it",
                    extra={"seconds": behind / 1e9},
                )

    def discipline(self) -> None:
        """Follow the wall clock; to be called about ten times a second."""
        monotonic = self.monotonic()
        wall_offset = self._clock.now() - monotonic
        jump = wall_offset - self._wall_offset
        elapsed = monotonic - self._disciplined
        self._disciplined, self._wall_offset = monotonic, wall_offset
        if abs(jump) > _JUMP:
            step = max(min(jump, self._max_step, wall_offset - self.offset), 0)
            self.offset += step
            _LOG.warning(
                "the clock jumped",
                extra={
                    "seconds": jump / 1e9,
                    "followed_seconds": step / 1e9,
                    "arrivals_ahead_seconds": self.ahead / 1e9,
                },
            )
        most = elapsed // _SLEW
        self.offset += max(-most, min(most, wall_offset - self.offset))
