"""Stop times: ends queries with a `stop_at` by the clock if no row after it does so."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count

from mavstream_protocol.errors import MavstreamError
from mavstream_protocol.instants import format_instant
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.states import QueryState
from mavstream_server.operators.source import Source

_NEVER = 1 << 63
_GRACE = (
    1_000_000_000  # ns after `stop_at` during which rows that were stamped before it may still be appended
)
_RETRY = 5_000_000  # ns until an overdue query that still has rows to read is checked again


class StopTimePassed(MavstreamError):
    """A query has already read rows that arrived after the requested stop time."""

    code = "stop_at_passed"


def check_stop(query: RunningQuery, time: int | None) -> None:
    """Raise StopTimePassed if a query has read beyond an arrival time (us), or has stopped at its own."""
    for node in query.request.plan.sources:
        source = query.network.operators[node.name]
        assert isinstance(source, Source)
        if source.ended and query.request.options.stop_at is not None:
            raise StopTimePassed(
                f"query {query.id!r} has stopped reading stream {node.stream!r} at its stop_at "
                f"{format_instant(query.request.options.stop_at)} and cannot go on; register it again"
            )
        if time is not None and source.read_to >= time * 1000:
            raise StopTimePassed(
                f"query {query.id!r} has read stream {node.stream!r} up to what arrived at "
                f"{format_instant(source.read_to // 1000)}, so it cannot stop at {format_instant(time)}; "
                "give a later stop_at, or stop the query"
            )


class StopTimes:
    """The queries of an engine that have a `stop_at`, ordered by it.

    The loop compares `due` with the time at each step, so that a busy engine observes stop times, too.
    """

    def __init__(self) -> None:
        self._times: dict[RunningQuery, int] = {}
        self._agenda: list[tuple[int, int, RunningQuery]] = []  # a heap; outdated entries are skipped
        self._ties = count()
        self._overdue: dict[RunningQuery, None] = {}
        self.due = _NEVER
        """When `end_overdue` must be called (UTC, ns)."""

    def __len__(self) -> int:
        return len(self._times)

    def watch(self, query: RunningQuery) -> None:
        """Register the present stop time of a query, if any, in place of an earlier one."""
        self.forget(query)
        stop_at = query.request.options.stop_at
        if stop_at is not None:
            time = self._times[query] = stop_at * 1000 + _GRACE
            heappush(self._agenda, (time, next(self._ties), query))
            self.due = min(self.due, time)

    def forget(self, query: RunningQuery) -> None:
        """Remove a query that has ended."""
        self._times.pop(query, None)
        self._overdue.pop(query, None)

    def end_overdue(self, now: int) -> bool:
        """End the sources of overdue queries that have read all rows; returns whether there were any.

        The readers of the streams must have been refreshed before.
        """
        agenda = self._agenda
        while agenda and agenda[0][0] <= now:
            time, _, query = heappop(agenda)
            if self._times.get(query) == time:
                self._overdue[query] = None
        ended = False
        for query in tuple(self._overdue):
            if self._end(query):
                ended = True
        following = agenda[0][0] if agenda else _NEVER
        self.due = min(following, now + _RETRY) if self._overdue else following
        return ended

    def _end(self, query: RunningQuery) -> bool:
        """End the sources that have read all rows; those with unread rows continue until they have."""
        stop_at = query.request.options.stop_at
        assert stop_at is not None
        ended = False
        sources = [source for source in query.network.sources if not source.ended]
        for source in sources:
            if query.state is QueryState.PAUSED or not source.cursor.behind:
                source.end(stop_at * 1000)
                ended = True
        if all(source.ended for source in sources):
            self._overdue.pop(query)
        return ended
