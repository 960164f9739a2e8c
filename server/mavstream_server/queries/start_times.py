"""Start times: scheduled queries begin when their `start_at` has come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from mavstream_server.queries.query import Query

_LONGEST = 60.0  # seconds until the clock is looked at again: it may have been set forward meanwhile


class StartTimes:
    """The queries that are to start later, ordered by their times. One timer runs, for the first of them."""

    def __init__(self, now_us: Callable[[], int], begin: Callable[[Query], None]) -> None:
        """`begin` is called once for each query, when its time has come."""
        self._now_us = now_us
        self._begin = begin
        self._times: dict[str, int] = {}
        self._agenda: list[tuple[int, int, Query]] = []  # a heap; entries that changed are skipped
        self._ties = count()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._times)

    def is_ahead(self, start_at: int | None) -> bool:
        """Whether a time is still to come."""
        return start_at is not None and start_at > self._now_us()

    def add(self, query: Query) -> None:
        """Wait for the `start_at` of a query, in place of an earlier one; it must have one."""
        start_at = query.record.spec.start_at
        assert start_at is not None
        self._times[query.id] = start_at
        heappush(self._agenda, (start_at, next(self._ties), query))
        self._set_timer()

    def forget(self, query: Query) -> None:
        """Wait no more for a query."""
        self._times.pop(query.id, None)

    def tick(self) -> None:
        """Begin the queries whose time has come; called by the timer, and by whoever moves the clock."""
        now, agenda = self._now_us(), self._agenda
        while agenda and agenda[0][0] <= now:
            start_at, _, query = heappop(agenda)
            if self._times.get(query.id) == start_at:
                del self._times[query.id]
                self._begin(query)
        self._set_timer()

    def stop(self) -> None:
        """Begin nothing any more."""
        self._agenda.clear()
        self._times.clear()
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._agenda:
            delay = min(max(self._agenda[0][0] - self._now_us(), 0) / 1e6, _LONGEST)
            self._timer = asyncio.get_running_loop().call_later(delay, self.tick)
