"""Throttling of failed authentications: wrong tokens are counted per address and logged."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable

from mavstream_protocol.errors import MavstreamError

_LOG = logging.getLogger("mavstream.access")
_MOST_ADDRESSES = 10_000
_MOST_GOOD = 10_000
_MINUTE = 60.0


class TooManyAttempts(MavstreamError):
    """Raised for a token from an address that sent too many wrong ones."""

    code = "too_many_attempts"
    title = "Too many failed authentications from this address"
    status = 429


class Attempts:
    """Limits wrong tokens per address and minute; above the limit, other tokens from there are not checked.

    A token that was accepted from that address before is still accepted, so that nobody can lock out others
    behind the same proxy.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        # By address: wrong tokens of the current minute, and when it began.
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._good: OrderedDict[tuple[str, str], None] = OrderedDict()

    def check(self, address: str, digest: str) -> None:
        """Raise TooManyAttempts if a token must not be checked; `digest` is its hash."""
        if not self._wrong or (address, digest) in self._good:
            return
        count, began = self._wrong.get(address, (0, 0.0))
        left = began + _MINUTE - self._clock()
        if count >= self._per_minute and left > 0:
            raise TooManyAttempts(
                f"got {count} wrong tokens from {address} within a minute (MAVSTREAM_MAX_WRONG_TOKENS): wait "
                f"for {left:.0f} s"
            )

    def right(self, address: str, digest: str) -> None:
        """Record a token that was accepted."""
        good = self._good
        good[address, digest] = None
        good.move_to_end((address, digest))
        if len(good) > _MOST_GOOD:
            good.popitem(last=False)

    def wrong(self, address: str) -> None:
        """Record a wrong token; the first and the last allowed one of a minute are logged."""
        now = self._clock()
        count, began = self._wrong.pop(address, (0, now))
        if now - began >= _MINUTE:
            count, began = 0, now
        self._wrong[address] = count + 1, began
        if len(self._wrong) > _MOST_ADDRESSES:
            self._wrong.popitem(last=False)
        if count == 0 or count + 1 == self._per_minute:
            _LOG.warning("wrong token", extra={"address": address, "within_a_minute": count + 1})
