"""Open TCP connections: bounded in number, and idle ones make room for new ones."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_LOG = logging.getLogger("mavstream.server")
_REPORTS_APART = 10.0  # seconds


class OpenSockets:
    """The idle connections of a server, oldest first, and the limit on all its connections."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._idle: dict[asyncio.Transport, None] = {}
        self._refused = 0
        self._reported = -_REPORTS_APART

    def admit(self, transport: asyncio.Transport, count: int) -> bool:
        """Return whether one more connection may stay; `count` includes it.

        Above the limit the connection that has been idle for longest is aborted to make room, so that
        connections that send nothing cannot keep others out.
        """
        if count > self.most:
            oldest = next(iter(self._idle), None)
            if oldest is None:
                self._report()
                return False
            del self._idle[oldest]
            oldest.abort()
        self._idle[transport] = None
        return True

    def idle(self, transport: asyncio.Transport) -> None:
        """Record that a connection waits for its next request."""
        self._idle[transport] = None

    def busy(self, transport: asyncio.Transport) -> None:
        """Record that a connection has a request, is a websocket, or is closed."""
        self._idle.pop(transport, None)

    def _report(self) -> None:
        """Log refused connections, at most once every ten seconds."""
        self._refused += 1
        now = time.monotonic()
        if now - self._reported >= _REPORTS_APART:
            _LOG.warning("connections refused", extra={"limit": self.most, "refused": self._refused})
            self._reported, self._refused = now, 0


class StallTimer:
    """Calls back if a peer makes no progress in time."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float, expired: Callable[[], object]
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._expired = expired
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the timer, unless it runs."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._expired)

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
