"""Streams, stored tables and classes, with the rates of streams."""

from __future__ import annotations

from mavstream import AsyncClient
from mavstream_page.data.history import Rate
from mavstream_page.data.plans import tables_of
from mavstream_page.data.topic import Topic
from mavstream_protocol import QueryClass
from mavstream_protocol.wire.resources import QueryInfo, StreamInfo, TableInfo


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
