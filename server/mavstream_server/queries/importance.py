"""Importance by class: a stream is as important as the highest class that reads it."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from mavstream_protocol.wire.resources import DesiredState
from mavstream_server.queries.query import Query


class _Counted(NamedTuple):
    class_name: str
    streams: frozenset[str]
    """Names of streams, and ids of queries whose results are read."""


class ClassImportance:
    """The `Importance` of the streams and queries of a server; follows queries, their classes and priorities.

    Queries count while they run or start. Updates take time in the number of classes, not of queries.
    """

    def __init__(self) -> None:
        self.version = 0
        """Grows whenever an importance changes."""
        self.highest = 0
        """The highest priority of a class with queries; 0 without queries."""
        self._priorities: dict[str, int] = {}
        self._queries: dict[str, _Counted] = {}
        self._readers: dict[str, Counter[str]] = {}  # by stream: its queries by class
        self._classes: Counter[str] = Counter()  # all queries by class
        self._streams: dict[str, int] = {}

    def of_stream(self, stream: str) -> int:
        """Return the priority of the highest class that reads a stream; 0 if no query reads it."""
        return self._streams.get(stream, 0)

    def of_query(self, id_: str) -> int:
        """Return the priority of the highest class among a query and those that read it; 0 if none runs."""
        counted = self._queries.get(id_)
        own = 0 if counted is None else self._priorities.get(counted.class_name, 0)
        return max(own, self._streams.get(id_, 0))

    def set_priority(self, class_name: str, priority: int) -> None:
        """Set the priority of a class."""
        if self._priorities.get(class_name) == priority:
            return
        self._priorities[class_name] = priority
        self.version += 1
        self._refresh(frozenset(self._readers))

    def remove_class(self, class_name: str) -> None:
        """Forget the priority of a class without queries."""
        self._priorities.pop(class_name, None)

    def update(self, query: Query) -> None:
        """Count a query that is new, or whose class or desired state has changed."""
        runs = query.final is None and not query.scheduled and query.record.desired is DesiredState.RUNNING
        counted = _Counted(query.class_name, query.origins) if runs else None
        before = self._queries.get(query.id)
        if counted != before:
            self.remove(query.id)
            if counted is not None:
                self._queries[query.id] = counted
                self._count(counted, 1)

    def remove(self, id_: str) -> None:
        """Stop counting a query that was removed."""
        before = self._queries.pop(id_, None)
        if before is not None:
            self.version += 1
            self._count(before, -1)

    def _count(self, counted: _Counted, change: int) -> None:
        for counter in (self._classes, *(self._readers.setdefault(s, Counter()) for s in counted.streams)):
            counter[counted.class_name] += change
            if not counter[counted.class_name]:
                del counter[counted.class_name]
        self._refresh(counted.streams)

    def _refresh(self, streams: frozenset[str]) -> None:
        changed = False
        for stream in streams:
            readers = self._readers[stream]
            value = self._highest(readers)
            changed |= value != self._streams.get(stream, 0)
            self._streams[stream] = value
            if not readers:
                del self._readers[stream], self._streams[stream]
        highest = self._highest(self._classes)
        if changed or highest != self.highest:
            self.highest = highest
            self.version += 1

    def _highest(self, classes: Counter[str]) -> int:
        return max((self._priorities.get(name, 0) for name in classes), default=0)
