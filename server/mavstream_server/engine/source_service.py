"""Source service: when sources hand on rows, and how many at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mavstream_server.engine.query import RunningQuery
from mavstream_server.log.reader import LogReader
from mavstream_server.operators.source import Source

DEFAULT_TRAIN = 4096
"""Rows that a source hands on at once: cost per tuple falls steeply up to here and hardly beyond."""
_LONGEST_LINGER = 50_000_000  # ns, where no query on the stream has a latency target
_SHORTEST_LINGER = 50_000
_AT_ONCE = 2
"""Sources served between two slices. A batch that one hands on takes two slices or more, so that with many
sources the operators would fall behind, and rows grow old in queues, if all were served each time."""


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
        self._active: deque[SourceTask] = deque()

    def attach(self, stream: str, reader: LogReader) -> None:
        """Make a stream's log known."""
        self.feeds[stream] = StreamFeed(reader)

    def detach(self, stream: str) -> None:
        """Let a stream's log go; nobody may read it any more."""
        del self.feeds[stream]

    def add(self, stream: str, task: SourceTask) -> None:
        """Begin to serve a source."""
        self.feeds[stream].sources.append(task)
        self._of_query.setdefault(task.query.id, []).append((stream, task))
        self._activate((task,), 0)

    def remove(self, query: RunningQuery) -> None:
        """Stop serving the sources of a query."""
        for stream, task in self._of_query.pop(query.id, ()):
            self.feeds[stream].sources.remove(task)
        self._active = deque(task for task in self._active if task.query is not query)

    def look(self, now: int) -> None:
        """Look at all logs for news; costs about a microsecond per stream."""
        for feed in self.feeds.values():
            if not feed.sources:
                continue
            try:
                news = feed.news()
            except Exception as error:
                for task in tuple(feed.sources):
                    self._failed(task.query, task.source.name, error)
                continue
            if news:
                self._activate(feed.sources, now)

    def unblock(self, query: RunningQuery, now: int) -> None:
        """Let the sources of a query whose queues have drained go on."""
        query.blocked = False
        self._activate((task for _, task in self._of_query.get(query.id, ())), now)

    def has_room(self, query: RunningQuery) -> bool:
        """Whether a query's sources may read on."""
        return query.network.account.rows < (query.request.queue_limit or self.queue_limit)

    def _may_read(self, task: SourceTask) -> bool:
        """Whether a source may hand on: what it handed on before is taken, or a whole train waits.

        So under load rows gather in the log, and each turn of a query is spent on as many as there are.
        """
        if not self.has_room(task.query):
            return False
        return not task.source.untaken or task.source.waiting_rows >= self.train

    def serve(self, now: int, idle: bool) -> bool:
        """Let those few active sources that wait longest hand on a train each; returns whether any did."""
        served = False
        for _ in range(min(len(self._active), _AT_ONCE)):
            if not self._active:  # went with a query that failed
                break
            task = self._active.popleft()
            task.active = False
            if task.source.ended or not task.query.active:
                continue
            try:
                if not self._may_read(task):
                    task.query.blocked = True
                    continue
                due = task.due(now, self.train, idle)
                if due:
                    served = True
                    task.adapt(task.source.read(self.train), self.train, idle)
                    task.waiting_since = now
                task.active = not due or task.source.behind
            except Exception as error:
                self._failed(task.query, task.source.name, error)
                continue
            if task.active:
                self._active.append(task)
        return served

    def _activate(self, tasks: Iterable[SourceTask], now: int) -> None:
        for task in tasks:
            if not task.active and not task.source.ended:
                task.active = True
                task.waiting_since = now
                self._active.append(task)
