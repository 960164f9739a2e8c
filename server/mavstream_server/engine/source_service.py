"""Source service: when sources hand on rows, and how many at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mavstream_server.engine.query import RunningQuery
from mavstream_server.log.reader import LogReader
from mavstream_server.operators.source import Source

DEFAULT_TRAIN = 4096
"""Rows that a source hands on at once: cost per tuple falls steeply up to here and hardly beyond."""
_LONGEST_LINGER = 50_000_000  # ns, where no query on the stream has a latency target
_SHORTEST_LINGER = 50_000


class SourceTask:
    """A source of a query, and how long it waits for a train to fill.

    It waits not at all while the engine is idle, since then nothing is gained; under load small batches
    make it wait longer, up to a quarter of the query's latency target.
    """

    __slots__ = ("active", "cap", "linger", "query", "source", "waiting_since")

    def __init__(self, source: Source, query: RunningQuery) -> None:
        self.source = source
        self.query = query
        self.linger = 0
        self.active = False
        self.waiting_since = 0
        target = query.request.latency_target
        self.cap = _LONGEST_LINGER if target is None else min(_LONGEST_LINGER, target * 1000 // 4)

    def due(self, now: int, train: int, idle: bool) -> bool:
        """Whether to hand on now rather than to wait for more rows."""
        if idle or not self.linger or now >= self.waiting_since + self.linger:
            return True
        return self.source.waiting_rows >= train

    def adapt(self, rows: int, train: int, idle: bool) -> None:
        """Learn from a hand-over of so many rows."""
        if idle or rows >= train // 2:
            self.linger = self.linger // 2 if self.linger > _SHORTEST_LINGER else 0
        elif rows < train // 4:
            self.linger = min(self.cap, max(2 * self.linger, _SHORTEST_LINGER))


@dataclass(slots=True)
class StreamFeed:
    """A stream's log in this engine, and the sources that read it."""

    reader: LogReader
    sources: list[SourceTask] = field(default_factory=list)
    seen: int = -1
    """How far the log had come at the last look, in bytes."""

    def news(self) -> bool:
        """Whether the log has grown since the last look."""
        end = self.reader.end_offset
        if end == self.seen:
            return False
        self.seen = end
        return True


class SourceService:
    """Serves sources between two slices: those that have news, and whose queries have room for it."""

    def __init__(
        self, train: int, queue_limit: int, failed: Callable[[RunningQuery, str, Exception], None]
    ) -> None:
        """`failed` is told of a query whose source could not read on, by the source's name."""
        self._failed = failed
        self.train = train
        self.queue_limit = queue_limit
        self.feeds: dict[str, StreamFeed] = {}
        self._of_query: dict[str, list[tuple[str, SourceTask]]] = {}
        self._active: list[SourceTask] = []

    def attach(self, stream: str, reader: LogReader) -> None:
        """Make a stream's log known."""
        self.feeds[stream] = StreamFeed(reader)

    def add(self, stream: str, task: SourceTask) -> None:
        """Begin to serve a source."""
        self.feeds[stream].sources.append(task)
        self._of_query.setdefault(task.query.id, []).append((stream, task))
        self._activate((task,), 0)

    def remove(self, query: RunningQuery) -> None:
        """Stop serving the sources of a query."""
        for stream, task in self._of_query.pop(query.id, ()):
            self.feeds[stream].sources.remove(task)
        self._active = [task for task in self._active if task.query is not query]

    def look(self, now: int) -> None:
        """Look at all logs for news; costs about a microsecond per stream."""
        for feed in self.feeds.values():
            if feed.sources and feed.news():
                self._activate(feed.sources, now)

    def unblock(self, query: RunningQuery, now: int) -> None:
        """Let the sources of a query whose queues have drained go on."""
        query.blocked = False
        self._activate((task for _, task in self._of_query.get(query.id, ())), now)

    def has_room(self, query: RunningQuery) -> bool:
        """Whether a query's sources may read on."""
        return query.network.account.rows < (query.request.queue_limit or self.queue_limit)

    def serve(self, now: int, idle: bool) -> bool:
        """Let each active source hand on one train; returns whether any did."""
        if not self._active:
            return False
        served, again = False, []
        for task in self._active:
            task.active = False
            if task.source.ended or not task.query.active:
                continue
            if not self.has_room(task.query):
                task.query.blocked = True
                continue
            if not task.due(now, self.train, idle):
                again.append(task)
                continue
            served = True
            try:
                rows = task.source.read(self.train)
            except Exception as error:
                self._failed(task.query, task.source.name, error)
                continue
            task.adapt(rows, self.train, idle)
            task.waiting_since = now
            if task.source.behind:
                again.append(task)
        self._active = [task for task in again if task.query.active]
        for task in self._active:
            task.active = True
        return served

    def _activate(self, tasks: Iterable[SourceTask], now: int) -> None:
        for task in tasks:
            if not task.active and not task.source.ended:
                task.active = True
                task.waiting_since = now
                self._active.append(task)
