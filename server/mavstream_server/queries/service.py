"""Query service: registers, changes and removes queries, and starts them again after the engine died."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Callable, Collection, Mapping

from mavstream_protocol.admission import AdmissionPolicy
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.wire.resources import (
    ActualState,
    QueryChange,
    QueryInfo,
)
from mavstream_protocol.wire.seams import Seam
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.core.errors import Conflict
from mavstream_server.core.principal import ANYBODY, Principal
from mavstream_server.core.settings import Settings
from mavstream_server.engine.checkpoints.store import CheckpointStore
from mavstream_server.engine.process.events import Need
from mavstream_server.engine.process.messages import TableNeed
from mavstream_server.ingest.stream_store import StreamStore
from mavstream_server.optimizer.fairness import ClassFairness, fairness
from mavstream_server.optimizer.service import Registered
from mavstream_server.queries.admission_control import AdmissionControl
from mavstream_server.queries.chains import (
    ReadableShapes,
    in_reading_order,
    require_unread,
)
from mavstream_server.queries.classes import ClassRegistry
from mavstream_server.queries.lifecycle.beginning import QueryBeginning
from mavstream_server.queries.lifecycle.changes import QueryChanges
from mavstream_server.queries.lifecycle.crashes import QueryCrashes
from mavstream_server.queries.lifecycle.entries import QueryEntries
from mavstream_server.queries.lifecycle.finishing import QueryFinisher
from mavstream_server.queries.lifecycle.placement import Placement
from mavstream_server.queries.lifecycle.registration import QueryRegistration
from mavstream_server.queries.lifecycle.replacement_records import ReplacementRecords
from mavstream_server.queries.lifecycle.replacing import QueryReplacement
from mavstream_server.queries.lifecycle.resuming import QueryResuming
from mavstream_server.queries.lifecycle.start_times import StartTimes
from mavstream_server.queries.load_watch import LoadWatch
from mavstream_server.queries.owner_quotas import OwnerQuotas
from mavstream_server.queries.planning.planner import QueryPlanner, Verdict
from mavstream_server.queries.query import Query
from mavstream_server.queries.registry import QueryRegistry
from mavstream_server.queries.runs.service import QueryRuns
from mavstream_server.queries.stream_readers import StreamReaders
from mavstream_server.queries.trials import Trials
from mavstream_server.queries.views.delivery import Durability
from mavstream_server.queries.views.metrics import MetricsCache
from mavstream_server.queries.views.queries import QueryViews
from mavstream_server.results.service import ResultService
from mavstream_server.supervisor.crash import Crash
from mavstream_server.supervisor.engine_link import EngineLink, EngineRefused, EngineUnavailable
from mavstream_server.tables.store import TableStore

_log = logging.getLogger("mavstream.queries")


class QueryService:
    """All registered queries; the listener of the engine link. Bound to one event loop.

    Changes are written to the catalog first. Create it before the link is started, then call
    `link.start(service)` and `start()`. `assembly` connects it with the other services of a server.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        link: EngineLink,
        registry: QueryRegistry,
        readers: StreamReaders,
        streams: StreamStore,
        tables: TableStore,
        results: ResultService,
        admission: Callable[[], AdmissionPolicy],
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self.registry = registry
        self.results = results
        self._settings = settings
        self._catalog = catalog
        self._link = link
        self._readers = readers
        schemas, shapes = tables.schemas(), ReadableShapes(streams.shapes(), registry)
        durability = Durability.of(settings)
        self.classes = ClassRegistry(catalog, registry)
        self.metrics = MetricsCache(link)
        self.load = LoadWatch(self.metrics, streams, registry)
        self.admission = AdmissionControl(self.load, self.priorities, registry.targets, admission)
        self.planner = QueryPlanner(shapes, schemas, self.priorities, self.classes.has, self.admission)
        self.trials = Trials(self.planner, settings.streams_directory, settings.tables_directory)
        self.start_times = StartTimes(now_us, self._begin_due)
        self._entries = QueryEntries(
            settings.results_directory,
            registry,
            readers,
            self.start_times,
            self.planner,
            shapes,
            schemas,
            catalog.seen_fields,
            catalog.starts,
        )
        checkpoints = CheckpointStore(settings.checkpoints_directory)
        self._finisher = QueryFinisher(
            catalog, registry, readers, self.start_times, self.metrics, results, checkpoints
        )
        self.runs = QueryRuns(
            settings, catalog, readers, streams, results, self._finisher, self.priorities, now_us
        )
        self.views = QueryViews(
            registry,
            self.metrics,
            results,
            readers,
            shapes,
            schemas,
            self._entries.typed_plan,
            durability,
            self.runs.view,
        )
        replacements = ReplacementRecords(catalog, registry, readers, checkpoints, self.planner.type_plan)
        self.placement = Placement(
            settings.streams_directory,
            catalog,
            link,
            readers,
            self._finisher,
            results,
            tables,
            checkpoints,
            replacements,
            registry,
        )
        self._restarts: set[asyncio.Task[None]] = set()
        self._crashes = QueryCrashes(registry, self._finisher)
        self._beginning = QueryBeginning(
            registry, readers, streams, results, self.start_times, self.placement, self.runs
        )
        self._resuming = QueryResuming(
            catalog,
            registry,
            readers,
            streams,
            self.planner,
            self.placement,
            self._crashes,
            checkpoints,
            self.classes.has,
        )
        self.quotas = OwnerQuotas(registry, self.metrics, self._fail)
        self._registration = QueryRegistration(
            settings.max_queries,
            catalog,
            registry,
            self.planner,
            self.quotas,
            self.admission,
            self._entries,
            self._beginning,
            self.views,
            durability,
            now_us,
        )
        self._changes = QueryChanges(
            catalog,
            registry,
            self.placement,
            self.start_times,
            self.classes.has,
            self._beginning.begin_early,
            self._beginning.ends,
        )
        self._replacement = QueryReplacement(
            registry,
            self.planner,
            link,
            self.placement,
            self._changes,
            replacements,
            self.admission,
            results,
            self._beginning,
            self._registration.add,
        )

    async def start(self, *, new_epochs: bool = False) -> None:
        """Load the queries of the catalog and begin to start those that are to run.

        With `new_epochs` they continue under new epochs: offsets may stand for other results than before.
        """
        for name, priority in self.priorities().items():
            self.classes.set_priority(name, priority)
        owners, seams = self._catalog.owners.all("query"), dict[str, dict[int, Seam]]()
        for id_, seam in self._catalog.seams():
            seams.setdefault(id_, {})[seam.revision] = seam
        for record, needed in in_reading_order(self._catalog.queries()):
            plan = self._entries.typed(record) if needed else None
            if new_epochs and record.final_state is None:
                record = record._replace(epoch=self._catalog.next_epoch(record.id))
            self._entries.enter(record, plan, owners.get(record.id)).seams = seams.get(record.id, {})
        if self._settings.checkpoint_interval is None:
            # Those of an earlier run do not know what has happened since.
            shutil.rmtree(self._settings.checkpoints_directory, ignore_errors=True)
        self.placement.hold_checkpoints(query for query in self.registry if query.final is None)
        for query in [query for query in self.registry if query.outside]:
            self.runs.resume(query)
        self._place_all()

    async def stop(self) -> None:
        """Stop starting queries; running ones end with the engine and are started again with the next one."""
        self.start_times.stop()
        self.runs.close()
        await self.placement.stop()
        await self.planner.stop()

    # Registration

    async def validate(self, data: object) -> Verdict:
        """Validate a specification or a plan without starting anything; errors are returned, not raised."""
        return await self.planner.validate(data)

    async def register(
        self, data: object, key: str | None = None, principal: Principal = ANYBODY
    ) -> QueryInfo:
        """Register a query from its JSON form and start it.

        Raises InvalidQuery, TooMany, Conflict, and Forbidden for classes and streams that are not allowed.
        With an idempotency key, repeating the request returns the same query. Without an engine the query is
        `starting` until there is one; it misses no row that arrives from now on. A query whose `start_at` is
        in the future is `scheduled`.
        """
        return await self._registration.register(data, key, principal)

    async def put(
        self, ref: str, data: object, version: int | None = None, principal: Principal = ANYBODY
    ) -> tuple[QueryInfo, bool]:
        """Register a query under a name, or change the one that has it to another specification.

        Returns whether it is new. Raises what `QueryReplacement.put` does.
        """
        await self.quotas.check_memory(principal)
        found = await self._replacement.put(ref, data, version, principal)
        if isinstance(found, QueryInfo):
            return found, True
        query, estimate = found
        self.metrics.forget(query.id)
        info = await self.views.info(query.id)
        return info.model_copy(update={"admission": estimate}), False

    def _begin_due(self, query: Query) -> None:
        self._beginning.begin_due(query)

    # Lookup

    def get(self, ref: str) -> Query:
        """Return a query by its id or name; raises NotFound."""
        return self.registry.get(ref)

    def fairness(self) -> dict[str, ClassFairness]:
        """Return the fairness metrics of all classes over the last seconds."""
        return fairness(self.load.load, self.priorities())

    def watched(self) -> Collection[Registered]:
        """Return the queries that can run and have targets or allow shedding."""
        return self.registry.watched()

    def class_sizes(self) -> Mapping[str, int]:
        """Return the number of queries that can run, by class."""
        return self.registry.class_sizes()

    def priorities(self) -> Mapping[str, int]:
        """Return the priorities of the classes."""
        return self.classes.priorities()

    def users(self, stream: str) -> list[str]:
        """Return the ids of the queries that read a stream and have not ended."""
        return self._readers.queries(stream)

    def table_users(self, table: str) -> list[str]:
        """Return the ids of the queries that join a stored table and have not ended."""
        return [query.id for query in self.registry.joining(table)]

    async def table_need(self, table: str) -> TableNeed:
        """Return what queries may still join with a table; raises EngineUnavailable until all of them run."""
        if not self.placement.complete:
            raise EngineUnavailable("not all queries run yet; try again soon")
        return await self._link.table_need(table)

    # Changes

    async def change(self, ref: str, change: QueryChange, version: int | None = None) -> QueryInfo:
        """Change the desired state of a query, its class, times or targets.

        With `skip_to` a failed query goes on behind the rows that it failed at.

        Raises NotFound, WrongVersion, Conflict, InvalidQuery.
        """
        make = self._changes.make if change.skip_to is None else self._resuming.resume
        query = self.get(ref)
        await make(query, change, version)
        self.metrics.forget(query.id)
        return await self.views.info(query.id)

    async def migrate_plan(self, id_: str, plan: Plan) -> None:
        """Start the migration of a running query to an equivalent plan.

        Lasts until the query is restarted, with its registered plan; `plan` reports what runs. Raises
        NotFound, InvalidPlan, Conflict, EngineRefused (`swap_refused`) and EngineUnavailable.
        """
        query = self.get(id_)
        async with query.lock:
            if query.state is not ActualState.RUNNING:
                raise Conflict(
                    f"query '{id_}' is {query.state.value}; only a running query can be migrated",
                    code="wrong_state",
                )
            spec = query.record.spec.model_copy(update={"plan": plan})
            typed = await self.planner.type_plan(spec, self._catalog.seen_fields.of(id_))
            registered = plan == query.record.spec.plan
            plans = query.running_plans
            version = plans.registered if registered else plans.add(plan, typed)
            try:
                await self._link.migrate_plan(
                    id_, typed, version, None if registered else plan.model_dump_json()
                )
            except EngineRefused:
                query.running_plans.forget(version)
                raise
        self.metrics.forget(id_)

    async def remove(self, ref: str, version: int | None = None) -> None:
        """Stop a query and remove it with its results; raises NotFound, WrongVersion."""
        query = self.get(ref)
        id_ = query.id
        async with query.lock:
            self.get(id_)  # it may have been removed while this waited for the lock
            if version is not None and version != query.record.version:
                self._catalog.set_desired(id_, query.record.desired, version)
            require_unread(query, self.registry)
            await self.placement.forget(query)
            await self.placement.detach_results(query)
            self.start_times.forget(query)
            self._catalog.remove_query(id_)
            self.runs.forget(id_)
            self.registry.remove(id_)
            self._crashes.forget(id_)
            self.metrics.forget(id_)
            self.results.remove(id_)

    async def _fail(self, query: Query, reason: str) -> None:
        """End a query that has exceeded a quota; its results stay."""
        async with query.lock:
            if query.final is None:
                await self.placement.forget(query)
                self._finisher.finish(query, ActualState.FAILED, reason)

    # Events of the engine link

    def query_ended(self, id_: str, state: str, reason: str | None) -> None:
        """Finish a query that ended by itself; all its answers are in the log."""
        query = self.registry.find(id_)
        if query is not None and query.final is None:
            self._finisher.finish(query, ActualState(state), reason)

    def engine_died(self, crash: Crash) -> None:
        """Record that no query runs any more, and end those that killed the engine repeatedly."""
        self._readers.freeze()
        for query in self.registry:
            query.placed = query.paused = False
        self._crashes.add(crash)

    def engine_restarted(self) -> None:
        """Start all queries again in the new engine."""
        self._link.needs = {}
        self._place_all()

    def query_diverged(self, id_: str, rows: int) -> None:
        """Start a query anew whose recovery did not repeat all stored results: a gap, not a wrong answer."""
        query = self.registry.find(id_)
        if query is not None:
            fields = {"query": id_, "rows": rows}
            _log.error("query starts anew with a new epoch: its recovery gave other results", extra=fields)
            task = asyncio.create_task(self.placement.restart(query))
            self._restarts.add(task)
            task.add_done_callback(self._restarts.discard)

    def results_appended(self) -> None:
        """Wake the subscribers of result logs that have grown."""
        self.results.doorbell()

    def positions_changed(self, needs: Mapping[str, Need]) -> None:
        """Do nothing: stream readers read the link's needs on demand."""

    def _place_all(self) -> None:
        """Start all queries that are to run, by descending priority of their class."""
        self.placement.place_all(self.registry.unplaced(self.priorities()))
