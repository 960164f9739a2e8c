"""Overloaded streams: those whose rows arrive faster than any query reads them."""

from __future__ import annotations

from typing import NamedTuple

_SECOND = 1_000_000_000
_MOST = 2 * _SECOND
"""An overloaded stream has more unread rows than its fastest query reads in this time (ns), and ever more."""
_LEAST = _SECOND
"""It is overloaded until it has no more unread rows than that query reads in this time: it never runs dry."""
_LONGEST_SAMPLE = _SECOND
"""Positions that have not changed for so long, in ns, mean that nothing is read."""


class _Sample(NamedTuple):
    time: int
    end: int
    read: int


class OverloadDetector:
    """Compares the end of a stream with the position of its most advanced query.

    Not with that of the slowest one: a query that lags, or that reads old rows first, must not slow down the
    others.
    """

    def __init__(self) -> None:
        self.active = False
        """Whether the stream's producers should be slowed down."""
        self._last: _Sample | None = None
        self._rate: float | None = None  # rows read per ns
        self._grows = False

    def observe(self, now: int, end: int, read: int | None, spare: int) -> None:
        """Update `active`; to be called several times a second.

        `read` is the position of the most advanced query, as last reported, or None if none counts. `spare`
        is a number of unread rows that is never too many. `now` is a monotonic time in ns.
        """
        if read is None or self._last is None or read < self._last.read:
            self.active, self._rate, self._grows = False, None, False
            self._last = None if read is None else _Sample(now, end, read)
            return
        if read != self._last.read or now - self._last.time >= _LONGEST_SAMPLE:
            self._sample(self._last, _Sample(now, end, read))
        if self._rate is None:
            return
        unread = end - read
        if self.active:
            self.active = unread > max(self._rate * _LEAST, spare / 2)
        else:
            self.active = self._grows and unread > max(self._rate * _MOST, spare)

    def _sample(self, before: _Sample, sample: _Sample) -> None:
        self._last = sample
        rate = (sample.read - before.read) / (sample.time - before.time)
        self._rate = rate if self._rate is None else (self._rate + rate) / 2
        self._grows = sample.end - before.end > sample.read - before.read
