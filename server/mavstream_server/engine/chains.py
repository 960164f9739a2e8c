"""Chains: queries that read the results of other queries of the engine.

The queries below are called upstream, those above downstream. A result log is attached to the intake under
the name of its query, as the log of a stream is under the stream's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.sources.intake import Intake
from mavstream_server.engine.states import QueryState
from mavstream_server.log.result_reader import ResultReader

UNREAD_BYTES = 16 << 20
"""Bytes of results that a downstream query may have to read before the upstream query waits, by default."""


@dataclass(slots=True)
class _Upstream:
    """A query whose results others may read."""

    name: str
    reader: ResultReader
    query: RunningQuery | None = None
    """The query while it runs."""
    begun: int = 0
    """The offset of its first result since it was started in this engine."""
    expected: dict[str, int] = field(default_factory=dict)
    """The offsets from which queries will read that were not started yet, by id."""


class Chains:
    """The upstream queries of an engine. They wait while a downstream query has too many results to read."""

    def __init__(self, intake: Intake, now: Callable[[], int], unread_bytes: int = UNREAD_BYTES) -> None:
        self._intake = intake
        self._now = now
        self._most = unread_bytes
        self._upstreams: dict[str, _Upstream] = {}

    def __contains__(self, id_: str) -> bool:
        return id_ in self._upstreams

    def attach(self, name: str, id_: str, reader: ResultReader, query: RunningQuery | None) -> None:
        """Attach the result log of a query, which runs unless `query` is None."""
        upstream = self._upstreams[id_] = _Upstream(name, reader)
        reader.read = partial(self._read, upstream)
        self._intake.attach(name, reader)
        if query is not None:
            self.started(query)

    def detach(self, id_: str) -> None:
        """Detach the result log of a query that nobody reads."""
        upstream = self._upstreams.pop(id_, None)
        if upstream is not None:
            self._intake.detach(upstream.name)
            upstream.reader.close()

    def name(self, id_: str) -> str:
        """Return the name under which a query's results are attached."""
        return self._upstreams[id_].name

    def started(self, query: RunningQuery) -> None:
        """Follow the marks of a query that was started."""
        upstream = self._upstreams.get(query.id)
        if upstream is not None:
            output = query.output
            upstream.query, upstream.begun = query, output.sink.offset
            upstream.reader.reached = lambda: output.reached
            upstream.reader.over = False
            _want_watermarks(query)

    def ended(self, query: RunningQuery) -> None:
        """Let downstream queries end behind the last result; they wait for one that failed to be resumed."""
        upstream = self._upstreams.get(query.id)
        if upstream is not None and upstream.query is not None:
            self.part(query)
            upstream.reader.over = query.state is not QueryState.FAILED

    def finish(self, id_: str, over: bool) -> None:
        """Set whether a query that does not run will never be started again."""
        upstream = self._upstreams[id_]
        if upstream.query is None:
            upstream.reader.over = over

    def part(self, query: RunningQuery) -> None:
        """Stop following a query that is removed from the engine, perhaps to be started anew."""
        upstream = self._upstreams.get(query.id)
        if upstream is not None and upstream.query is not None:
            reached = query.output.reached
            upstream.query = None
            upstream.reader.reached = lambda: reached

    def expect(self, id_: str, reader: str, offset: int) -> None:
        """Retain results until a query is started that will read from an offset on."""
        self._upstreams[id_].expected[reader] = offset

    def arrived(self, reader: str) -> None:
        """Note that an expected query was started, or will not be."""
        for upstream in self._upstreams.values():
            upstream.expected.pop(reader, None)

    def needed(self, id_: str) -> int | None:
        """Return the lowest offset of a query's results that others still read; None if nobody does."""
        upstream = self._upstreams.get(id_)
        if upstream is None:
            return None
        reading = [
            task.work.cursor.position
            for task in self._intake.feeds[upstream.name].sources
            if not task.work.ended
        ]
        return min([*reading, *upstream.expected.values()], default=None)

    def appended(self, id_: str) -> None:
        """Let a query wait if a downstream query has too much to read; called with each of its appends."""
        upstream = self._upstreams.get(id_)
        if upstream is not None and upstream.query is not None and self._unread(upstream) > self._most:
            upstream.query.network.account.slowed = True

    def _read(self, upstream: _Upstream) -> None:
        """Let the upstream query go on when half of what it may be ahead was read."""
        query = upstream.query
        if query is not None and query.network.account.slowed and self._unread(upstream) <= self._most // 2:
            self._release(query)

    def relieve(self) -> None:
        """Let queries go on whose downstream queries have ended or were paused."""
        for upstream in self._upstreams.values():
            self._read(upstream)

    def _release(self, query: RunningQuery) -> None:
        query.network.account.slowed = False
        if query.active:
            self._intake.unblock(query, self._now())

    def _unread(self, upstream: _Upstream) -> int:
        """Return the bytes that the query that is most behind has to read."""
        sources = self._intake.feeds[upstream.name].sources
        return max([task.work.cursor.backlog.nbytes for task in sources if not task.work.ended], default=0)

    def reaching(self, query: RunningQuery | None) -> set[str]:
        """Return the ids of the queries whose results reach a query, through others that run, too."""
        found = set[str]()
        waiting = [] if query is None else list(query.request.plan.upstream_queries.values())
        while waiting:
            id_ = waiting.pop()
            if id_ not in found:
                found.add(id_)
                upstream = self._upstreams.get(id_)
                if upstream is not None and upstream.query is not None:
                    waiting += upstream.query.request.plan.upstream_queries.values()
        return found

    @property
    def expected(self) -> list[str]:
        """The ids of the queries whose results others will read that were not started yet."""
        return [id_ for id_, upstream in self._upstreams.items() if upstream.expected]


def _want_watermarks(query: RunningQuery) -> None:
    """Let all watermarks pass to a query's output from now on: windows above it close by them.

    The present ones are emitted again, since those before may not have passed.
    """
    if query.output.acts_on_watermarks:
        return
    query.output.acts_on_watermarks = True
    query.network.choose_watermarks()
    for member in query.shared:
        member.pipeline.choose_watermarks()
    for source in query.output.sources:
        source.emit_mark(source.frontier)
