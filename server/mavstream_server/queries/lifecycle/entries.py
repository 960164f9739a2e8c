"""Entries of the registry: queries made from their records in the catalog, with their plans and schemas."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mavstream_protocol.errors import InvalidObject
from mavstream_protocol.schema import Schema
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_server.catalog.catalog import QueryRecord
from mavstream_server.catalog.seen_fields import SeenFields
from mavstream_server.catalog.starts import QueryStarts
from mavstream_server.log import LogError, load_description
from mavstream_server.queries.chains import ReadableShapes, plan_origins
from mavstream_server.queries.lifecycle.start_times import StartTimes
from mavstream_server.queries.planning import validation as specs
from mavstream_server.queries.planning.planner import QueryPlanner
from mavstream_server.queries.planning.seen_shapes import seen_shapes
from mavstream_server.queries.query import Query
from mavstream_server.queries.registry import QueryRegistry
from mavstream_server.queries.stream_readers import StreamReaders

_NO_COLUMNS = Schema(())


class QueryEntries:
    """Enters queries in the registry, and in the schedule if they begin later."""

    def __init__(
        self,
        results_directory: Path,
        registry: QueryRegistry,
        readers: StreamReaders,
        start_times: StartTimes,
        planner: QueryPlanner,
        shapes: ReadableShapes,
        tables: Mapping[str, Schema],
        seen_fields: SeenFields,
        starts: QueryStarts,
    ) -> None:
        self._results_directory = results_directory
        self._registry = registry
        self._readers = readers
        self._start_times = start_times
        self._planner = planner
        self._shapes = shapes
        self._tables = tables
        self._seen_fields = seen_fields
        self._starts = starts

    def enter(self, record: QueryRecord, plan: TypedPlan | None, owner: str | None) -> Query:
        """Enter a query that the catalog has; without a plan if it ended and its streams were removed."""
        query = Query(record, plan, lambda: self._schema_of(record), owner)
        query.begun, query.resumes = self._starts.of(record.id)
        if plan is not None:
            query.beyond = plan_origins(plan, self._registry) - query.origins
        query.scheduled = (
            query.final is None and not query.begun and self._start_times.is_ahead(record.spec.start_at)
        )
        self._registry.enter(query)
        if query.final is None:
            self._readers.add(query)
        if query.scheduled:
            self._start_times.add(query)
        return query

    def typed(self, record: QueryRecord) -> TypedPlan | None:
        """Return the typed plan, or None if it no longer matches: streams of ended queries may be removed."""
        try:
            shapes = seen_shapes(self._shapes, self._seen_fields.of(record.id))
            return specs.type_plan(record.spec, shapes, self._tables)
        except InvalidObject:
            return None

    async def typed_plan(self, record: QueryRecord) -> TypedPlan | None:
        """Return the typed plan of an ended query, or None if it no longer matches."""
        try:
            return await self._planner.type_plan(record.spec, self._seen_fields.of(record.id))
        except InvalidObject:
            return None

    def _schema_of(self, record: QueryRecord) -> Schema:
        """Return the result schema of a query that ended before this server started, from its log."""
        try:
            return load_description(self._results_directory / record.id).schema
        except LogError:
            plan = self.typed(record)
            return _NO_COLUMNS if plan is None else plan.schema
