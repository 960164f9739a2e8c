"""Streams, stored tables and classes, with the rates of streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mavstream import AsyncClient, Forbidden, NotAuthorised, NotFound
from mavstream_page.data.history import Rate
from mavstream_page.data.plans import tables_of
from mavstream_page.data.topic import Topic
from mavstream_protocol import QueryClass
from mavstream_protocol.streams import DerivedStreamSpec
from mavstream_protocol.wire.resources import QueryInfo, StreamInfo, TableInfo

SHOWN_ROWS = 20
"""The newest rows of a stream that are shown."""
SHOWN_READERS = 20


class StreamsTopic(Topic):
    """All that queries can read, and the classes that they can belong to."""

    key = "streams"

    def __init__(self) -> None:
        super().__init__()
        self.streams: dict[str, StreamInfo] = {}
        self.tables: dict[str, TableInfo] = {}
        self.classes: list[QueryClass] = []
        """The most important first."""
        self.queries: dict[str, QueryInfo] = {}
        """Queries that have not ended, by name."""
        self.readers: dict[str, list[QueryInfo]] = {}
        """Queries that have not ended, by the stream or table that they read."""
        self.rates: dict[str, Rate] = {}

    async def poll(self, client: AsyncClient, now: float) -> None:
        """Read the lists."""
        self.streams = {each.name: each for each in await client.streams()}
        self.tables = {each.name: each for each in await client.tables()}
        self.classes = sorted(await client.classes(), key=lambda one: (-one.priority, one.name))
        going = [one for one in await client.queries() if one.state.value not in ("stopped", "finished")]
        self.queries = {each.spec.name: each for each in going}
        self.readers = {}
        for query in going:
            for name in query.spec.plan.streams | tables_of(query.spec.plan):
                self.readers.setdefault(name, []).append(query)
        for name, info in self.streams.items():
            self.rates.setdefault(name, Rate()).count(now, info.position)
        for gone in set(self.rates) - set(self.streams):
            del self.rates[gone]


@dataclass(frozen=True, slots=True)
class Reader:
    """A query that reads a stream."""

    query: QueryInfo
    waiting: int | None
    """Rows of the stream that it has not read yet; None if it does not run."""


class StreamTopic(Topic):
    """The newest rows of a stream, and how far its readers are behind; for streams that somebody looks at."""

    every: ClassVar[float] = 2.0

    def __init__(self, name: str, known: StreamsTopic) -> None:
        super().__init__()
        self._name = name
        self._known = known
        self.rows: list[dict[str, Any]] = []
        """The oldest of them first."""
        self.position = 0
        """Position of the row that follows them."""
        self.unreadable: str | None = None
        """Why there are no rows, such as a token of another role."""
        self.readers: list[Reader] = []
        """At most `SHOWN_READERS` of them."""

    async def poll(self, client: AsyncClient, now: float) -> None:
        """Read the rows if there are new ones, and the operators of the readers."""
        info = await client.stream_info(self._name)
        try:
            if info.position != self.position:
                self.rows = await self._newest(client, info)
                self.position = info.position
            self.unreadable = None
        except (NotAuthorised, Forbidden) as error:
            self.unreadable = str(error)
        readers = self._known.readers.get(self._name, [])[:SHOWN_READERS]
        self.readers = [Reader(query, await self._waiting(client, query.id)) for query in readers]

    async def _newest(self, client: AsyncClient, info: StreamInfo) -> list[dict[str, Any]]:
        if isinstance(info.spec, DerivedStreamSpec):
            after = info.position - 1 - SHOWN_ROWS
            pulled = await client.query(info.spec.derived_from).pull(
                after if after >= 0 else None, SHOWN_ROWS
            )
            return list(pulled.rows)
        page = await client.rows(info.name, max(info.begin, info.position - SHOWN_ROWS) - 1, SHOWN_ROWS)
        return page.rows

    async def _waiting(self, client: AsyncClient, query: str) -> int | None:
        try:
            plan = await client.query(query).plan()
        except NotFound:
            return None
        sources = {edge.to for edge in plan.edges if edge.from_ == f"stream:{self._name}"}
        waiting = [each.queued for each in plan.operators if each.name in sources]
        return max(waiting, default=None)
