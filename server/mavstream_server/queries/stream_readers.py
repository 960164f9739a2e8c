"""Stream readers: which queries read which streams, and the lowest positions that they still need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Protocol

from mavstream_server.engine.process.events import Need
from mavstream_server.queries.query import Query
from mavstream_server.queries.start import waits_for_time


class EngineNeeds(Protocol):
    """The positions that the engine's queries need, as last reported."""

    @property
    def needs(self) -> Mapping[str, Need]:
        """The lowest needed position by stream."""


class StreamReaders:
    """The queries that can run, by the streams that they read; the `Readers` of the stream store."""

    def __init__(self, engine: EngineNeeds) -> None:
        self._engine = engine
        # By stream: the queries that read it, and whether each depends on time to pass.
        self._queries: dict[str, dict[str, bool]] = {}
        self._waiting: Counter[str] = Counter()
        # Start positions of queries that are not in the engine yet: by query, and the same by stream.
        self._starts: dict[str, Mapping[str, int]] = {}
        self._held: dict[str, dict[str, int]] = {}
        # What the queries of an engine that died need, until all of them run again.
        self._before: Mapping[str, Need] = {}

    def add(self, query: Query) -> None:
        """Add a query that can run; call again when a scheduled one starts, which may then depend on time."""
        waits = query.plan is not None and not query.scheduled and waits_for_time(query.plan)
        for stream in query.origins:
            queries = self._queries.setdefault(stream, {})
            before, queries[query.id] = queries.get(query.id, False), waits
            self._waiting[stream] += waits - before

    def remove(self, query: Query) -> None:
        """Remove a query that has ended; it needs no rows any more."""
        self.release(query)
        for stream in query.origins:
            self._waiting[stream] -= self._queries.get(stream, {}).pop(query.id, False)

    def follow(self, query: Query, before: Collection[str]) -> None:
        """Note that the rows of other streams reach a query than those of the streams `before`."""
        for stream in set(before) - query.origins:
            self._waiting[stream] -= self._queries.get(stream, {}).pop(query.id, False)
        self.add(query)

    def hold(self, query: Query, positions: Mapping[str, int]) -> None:
        """Set the start positions of a query; rows from there on are retained until the engine runs it.

        Those in the results of other queries are under the names of these.
        """
        self._starts[query.id] = positions
        self.keep(query, {stream: at for stream, at in positions.items() if stream in query.streams})

    def keep(self, query: Query, positions: Mapping[str, int]) -> None:
        """Retain the rows from these positions on until the engine runs the query."""
        for stream, position in positions.items():
            self._held.setdefault(stream, {})[query.id] = position

    def release(self, query: Query) -> None:
        """Drop the start positions of a query: from now on the engine reports what it needs."""
        self._starts.pop(query.id, None)
        for stream in query.streams:
            self._held.get(stream, {}).pop(query.id, None)

    def freeze(self) -> None:
        """Retain what the engine's queries need until `thaw`: it has died, and they will continue there."""
        known = {**self._before}
        for stream, need in self._engine.needs.items():
            if stream not in known or need.position < known[stream].position:
                known[stream] = need
        self._before = known

    def thaw(self) -> None:
        """Retain what the engine reports: all queries run again."""
        self._before = {}

    def start_positions(self, query: Query) -> Mapping[str, int] | None:
        """Return the start positions of a query, or None if it may start at the end of its streams."""
        return self._starts.get(query.id)

    def queries(self, stream: str) -> list[str]:
        """Return the ids of the queries that can run and that a stream's rows reach, or a query's results."""
        return list(self._queries.get(stream, ()))

    def waits_for_time(self, stream: str) -> bool:
        """Return whether a query needs a stream's time to advance even without rows."""
        return self._waiting[stream] > 0

    def needed_position(self, stream: str) -> int | None:
        """Return the lowest position of a stream that a query still needs, or None if no query reads it."""
        return self._needed(stream)[0]

    def read_position(self, stream: str) -> int | None:
        """Return the position of the most advanced query on a stream, or None if no query reads it."""
        need = self._engine.needs.get(stream)
        return None if need is None or not self._queries.get(stream) else need.furthest

    def held_by(self, stream: str) -> str | None:
        """Return the id of the query that needs that position."""
        return self._needed(stream)[1]

    def held_results(self, name: str, end: int) -> str | None:
        """Return the id of the query that is most behind in a query's results, of which `end` is the next."""
        need = self._engine.needs.get(name)
        return None if need is None or need.position >= end else need.query

    def _needed(self, stream: str) -> tuple[int | None, str | None]:
        lowest = [(position, id_) for id_, position in self._held.get(stream, {}).items()]
        # The query that reported it may have ended since, but others may read just behind it.
        if self._queries.get(stream):
            needs = (self._engine.needs.get(stream), self._before.get(stream))
            lowest += [(need.position, need.query) for need in needs if need is not None]
        return min(lowest, default=(None, None))
