"""A sink that notes where a query's sources are when its plan is replaced."""

from __future__ import annotations

from mavstream_protocol.schema import Schema
from mavstream_server.operators.source import Source
from mavstream_server.testing.plans import MemorySink, PlanRun


class SeamSink(MemorySink):
    """Collects answers; at the seam it notes up to where the old plan has read its streams."""

    def __init__(self) -> None:
        super().__init__()
        self._sources: dict[str, Source] = {}
        self.seam: dict[str, int] = {}
        """The positions at the seam, by stream."""

    def watch(self, run: PlanRun) -> None:
        """Watch the sources of the plan that a query has now."""
        nodes = run.query.request.plan.sources
        self._sources = {node.stream: run.query.sources[node.name].work for node in nodes}

    def change(self, schema: Schema) -> None:
        self.seam = {stream: source.cursor.position for stream, source in self._sources.items()}
        super().change(schema)
