"""Read-only views of queries for the API: registry entries with the engine's metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from mavstream_protocol.queries import QueryBackend
from mavstream_protocol.schema import Schema
from mavstream_protocol.streams import DerivedStreamSpec, field_specs
from mavstream_protocol.typed_plan import StreamShape, TypedPlan
from mavstream_protocol.wire.plans import GlobalPlan, QueryPlan
from mavstream_protocol.wire.query_run import QueryRun
from mavstream_protocol.wire.resources import ActualState, Page, QueryInfo, StreamInfo
from mavstream_server.catalog.catalog import QueryRecord
from mavstream_server.core.metrics import QueryMetrics
from mavstream_server.optimizer.running_plans import RunningPlan, SearchedQuery, searched
from mavstream_server.queries.query import Query
from mavstream_server.queries.registry import QueryRegistry
from mavstream_server.queries.stream_readers import StreamReaders
from mavstream_server.queries.views.chain import chain_view, queries_below
from mavstream_server.queries.views.delivery import Durability
from mavstream_server.queries.views.metrics import MetricsCache, describe
from mavstream_server.queries.views.plans import current_stats, global_plan, query_plan
from mavstream_server.results.service import ResultService


class QueryViews:
    """Returns views of queries; changes nothing."""

    def __init__(
        self,
        registry: QueryRegistry,
        metrics: MetricsCache,
        results: ResultService,
        readers: StreamReaders,
        shapes: Mapping[str, StreamShape],
        tables: Mapping[str, Schema],
        typed: Callable[[QueryRecord], Awaitable[TypedPlan | None]],
        durability: Durability,
        run_of: Callable[[Query], QueryRun | None],
    ) -> None:
        """`shapes` and `tables` are what plans can read.

        `typed` returns the plan of an ended query, if it still matches what it reads; `run_of` returns the
        run of a query of another backend.
        """
        self._registry = registry
        self._metrics = metrics
        self._results = results
        self._readers = readers
        self._shapes = shapes
        self._tables = tables
        self._typed = typed
        self._durability = durability
        self._run_of = run_of

    async def info(self, ref: str) -> QueryInfo:
        """Return a query with its current metrics, by its id or name; raises NotFound."""
        query = self._registry.get(ref)
        return self._describe(query, (await self._metrics.of((query.id,))).get(query.id))

    async def page(
        self,
        after: str | None = None,
        limit: int = 100,
        class_: str | None = None,
        state: ActualState | None = None,
        backend: QueryBackend | None = None,
    ) -> Page[QueryInfo]:
        """Return a page of queries, ordered by id, filtered by class, state and backend."""
        found = self._registry.select(after, limit + 1, class_, state, backend=backend)
        part = found[:limit]
        stats = await self._metrics.of(query.id for query in part)
        items = [self._describe(query, stats.get(query.id)) for query in part]
        return Page[QueryInfo](items=items, next=part[-1].id if len(found) > limit else None)

    def _describe(self, query: Query, stats: QueryMetrics | None) -> QueryInfo:
        results, name = self._results.of(query).end, query.name
        read_by = self._registry.readers(query.id)
        held_by = self._readers.held_results(name, results) if read_by else None
        return describe(query, stats, results, self._durability, read_by, held_by, self._run_of(query))

    def derived_streams(self) -> dict[str, StreamInfo]:
        """Return the derived streams, by name."""
        found = {}
        for name, shape in self._shapes.items():
            if shape.derived and shape.query is not None:
                found[name] = self._derived(name, shape, self._registry.get(shape.query))
        return found

    def _derived(self, name: str, shape: StreamShape, query: Query) -> StreamInfo:
        results = self._results.of(query)
        fields = field_specs(shape.schema)
        column = shape.schema.get(shape.event_time or "")
        event_time = None if column is None or column.nullable else column.name
        return StreamInfo(
            name=name,
            spec=DerivedStreamSpec(name=name, fields=fields, event_time=event_time, derived_from=query.id),
            position=results.end,
            begin=results.begin,
            bytes=results.nbytes,
            watermark=None,
            producers={},
            over_quota=False,
            held_by=self._readers.held_results(name, results.end),
            importance=self._registry.importance.of_query(query.id),
            owner=query.owner,
        )

    async def plan(self, ref: str) -> QueryPlan:
        """Return the plan of a query, by id or name, with metrics of its operators; raises NotFound."""
        query = self._registry.get(ref)
        plan = query.plan or await self._typed(query.record)
        below = queries_below(query, self._registry)
        stats = await self._metrics.of(one.id for one in (query, *below))
        chain = chain_view(query, below, stats, self._results)
        return query_plan(query, plan, stats.get(query.id), chain)

    async def global_plan(self, after: str | None = None, limit: int = 100) -> GlobalPlan:
        """Return a page of the operators of all queries that the engine runs, paged by query."""
        found = self._registry.select(after, limit + 1, placed=True)
        part = found[:limit]
        stats = await self._metrics.of(query.id for query in part)
        return global_plan(part, stats, part[-1].id if len(found) > limit else None)

    async def searched(self, ids: Iterable[str]) -> list[SearchedQuery]:
        """Return those of the queries that run, with their running plans and metrics."""
        known = [query for id_ in ids if (query := self._registry.find(id_)) is not None]
        stats = await self._metrics.of(query.id for query in known)
        shapes, found = self._shapes, list[SearchedQuery]()
        for query in known:
            current, spec = current_stats(query, stats.get(query.id)), query.record.spec
            if current is None or query.plan is None or query.state is not ActualState.RUNNING:
                continue
            plan = query.running_plans.running(current) or RunningPlan(spec.plan, query.plan)
            found.append(searched(query.id, spec, plan, current, shapes, self._tables))
        return found
