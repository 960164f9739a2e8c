"""Start times: starts scheduled queries when their `start_at` is reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from mavstream_server.queries.query import Query

_MAX_DELAY_S = 60.0  # maximum delay of the timer in seconds: the system clock may be set forward meanwhile


class StartTimes:
    """Scheduled queries, ordered by start time, with one timer for the first of them."""

    def __init__(self, now_us: Callable[[], int], begin: Callable[[Query], None]) -> None:
        """`begin` is called once for each query, when its start time is reached."""
        self._now_us = now_us
        self._begin = begin
        self._times: dict[str, int] = {}
        self._agenda: list[tuple[int, int, Query]] = []  # a heap; outdated entries are skipped
        self._ties = count()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._times)

    def is_ahead(self, start_at: int | None) -> bool:
        """Whether a time is in the future."""
        return start_at is not None and start_at > self._now_us()

    def add(self, query: Query) -> None:
        """Schedule a query for its `start_at`, which must be set; replaces an earlier time."""
        start_at = query.record.spec.start_at
        assert start_at is not None
        self._times[query.id] = start_at
        heappush(self._agenda, (start_at, next(self._ties), query))
        self._set_timer()

    def forget(self, query: Query) -> None:
        """Remove a query from the schedule."""
        self._times.pop(query.id, None)

    def tick(self) -> None:
        """Start the queries that are due; called by the timer, and by simulations that advance the clock."""
        now, agenda = self._now_us(), self._agenda
        while agenda and agenda[0][0] <= now:
            start_at, _, query = heappop(agenda)
            if self._times.get(query.id) == start_at:
                del self._times[query.id]
                self._begin(query)
        self._set_timer()

    def stop(self) -> None:
        """Cancel the timer; no more queries are started."""
        self._agenda.clear()
        self._times.clear()
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._agenda:
            delay = min(max(self._agenda[0][0] - self._now_us(), 0) / 1e6, _MAX_DELAY_S)
            self._timer = asyncio.get_running_loop().call_later(delay, self.tick)
