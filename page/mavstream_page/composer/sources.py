"""What a query can read: streams, the results of other queries, and stored tables."""

from __future__ import annotations

from collections.abc import Mapping

from mavstream_page.data.catalog import catalog_of
from mavstream_page.data.streams import StreamsTopic
from mavstream_protocol import InvalidObject
from mavstream_protocol.plans.inference import infer
from mavstream_protocol.sql import Catalog
from mavstream_protocol.typed_plan import StreamShape
from mavstream_protocol.wire.resources import QueryInfo


class Sources:
    """The catalog of a server; what the results of queries look like is inferred from their plans, once."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        self._known: dict[tuple[str, int], StreamShape | None] = {}
        self._fed = Catalog()

    @property
    def queries(self) -> list[str]:
        """The names of the queries that can be read, except derived streams."""
        return [
            name for name, shape in self.catalog.streams.items() if shape.is_query and not shape.is_stream
        ]

    def update(self, topic: StreamsTopic) -> bool:
        """Take in what was read from the server; returns whether anything has changed."""
        fed = catalog_of(topic.streams.values(), topic.tables.values())
        wanted = {(each.id, each.revision) for each in topic.queries.values()}
        if fed == self._fed and wanted == set(self._known):
            return False
        if fed != self._fed:
            self._known.clear()
        self._fed = fed
        self._known = {key: shape for key, shape in self._known.items() if key in wanted}
        self.catalog = Catalog(self._with_queries(topic.queries), fed.tables)
        return True

    def _with_queries(self, queries: Mapping[str, QueryInfo]) -> dict[str, StreamShape]:
        streams = dict(self._fed.streams)
        waiting = dict(queries)
        while True:
            # A query can read others, so these are inferred first.
            ready = [name for name, each in waiting.items() if not each.spec.plan.queries & waiting.keys()]
            if not ready:
                return streams
            for name in ready:
                shape = self._shape(waiting.pop(name), streams)
                if shape is not None:
                    streams[name] = shape

    def _shape(self, query: QueryInfo, streams: Mapping[str, StreamShape]) -> StreamShape | None:
        key = (query.id, query.revision)
        if key not in self._known:
            try:
                typed = infer(query.spec.plan, streams, self._fed.tables)
                self._known[key] = typed.results(query.id, derived=query.spec.derive)
            except InvalidObject:
                self._known[key] = None
        return self._known[key]
