"""Quotas of tokens: open connections, and rows per second."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from mavstream_server.core.errors import TooMany
from mavstream_server.core.principal import Principal

BURST_S = 1.0
"""The burst that is allowed, in seconds at the full rate."""


class RowRate:
    """The rows that a token may append: a bucket that fills at its rate. Rows beyond it become a debt."""

    def __init__(self, rows_per_second: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.rows_per_second = rows_per_second
        self._clock = clock
        self._left = rows_per_second * BURST_S
        self._since = clock()

    def take(self, rows: int) -> float:
        """Count rows that arrived; return the seconds to wait before more are read."""
        self._fill()
        self._left -= rows
        return self.wait

    @property
    def wait(self) -> float:
        """Seconds until the debt is paid; 0 if there is none."""
        self._fill()
        return max(0.0, -self._left / self.rows_per_second)

    def check(self, name: str | None) -> None:
        """Raise TooMany if there is a debt; for requests, which are not slowed down but refused."""
        if self.wait:
            raise TooMany(
                f"token '{name}' may append {self.rows_per_second} rows per second: send again in "
                f"{self.wait:.1f} s, or use the websocket, which only slows down",
                code="row_rate",
            )

    def _fill(self) -> None:
        now = self._clock()
        most = self.rows_per_second * BURST_S
        self._left = min(most, self._left + (now - self._since) * self.rows_per_second)
        self._since = now


class TokenUsage:
    """The current usage of each token, over all its connections."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: Counter[str] = Counter()
        self._rates: dict[str, RowRate] = {}

    def enter(self, principal: Principal) -> None:
        """Count a connection that opens; raise TooMany above the quota."""
        most = principal.quotas.connections
        if principal.name is None or most is None:
            return
        if self._open[principal.name] >= most:
            raise TooMany(
                f"token '{principal.name}' has {most} open requests and websockets, which is its quota: "
                "close some",
                code="token_connections",
            )
        self._open[principal.name] += 1

    def leave(self, principal: Principal) -> None:
        """Count a connection that closes."""
        if principal.name is not None and principal.quotas.connections is not None:
            self._open[principal.name] -= 1

    def rate(self, principal: Principal) -> RowRate | None:
        """Return the rate of a token, shared by all its connections; None if it has no limit."""
        limit = principal.quotas.rows_per_second
        if principal.name is None or limit is None:
            return None
        known = self._rates.get(principal.name)
        if known is None or known.rows_per_second != limit:
            known = self._rates[principal.name] = RowRate(limit, self._clock)
        return known
