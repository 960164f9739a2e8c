"""Query service: registers, changes and removes queries, and starts them again after the engine died."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Callable, Collection, Mapping

from mavstream_protocol.admission import AdmissionPolicy
from mavstream_protocol.classes import DEFAULT_CLASS
from mavstream_protocol.errors import InvalidObject
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.queries import QuerySpec, ReadFrom
from mavstream_protocol.schema import Schema
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_protocol.wire.resources import (
    ActualState,
    QueryChange,
    QueryInfo,
)
from mavstream_server.catalog.catalog import Catalog, QueryRecord
from mavstream_server.core.errors import Conflict, NotFound, TooMany, listed
from mavstream_server.core.principal import ANYBODY, Principal
from mavstream_server.core.settings import Settings
from mavstream_server.engine.checkpoints.store import CheckpointStore
from mavstream_server.engine.process.messages import Need
from mavstream_server.ingest.stream_store import StreamStore
from mavstream_server.log import LogError, load_description
from mavstream_server.optimizer.fairness import ClassFairness, fairness
from mavstream_server.optimizer.service import Registered
from mavstream_server.queries.admission_control import AdmissionControl
from mavstream_server.queries.chains import (
    ReadableShapes,
    in_reading_order,
    plan_origins,
    plan_streams,
    require_readable,
    require_unread,
)
from mavstream_server.queries.changes import QueryChanges
from mavstream_server.queries.crashes import QueryCrashes
from mavstream_server.queries.finishing import QueryFinisher
from mavstream_server.queries.load_watch import LoadWatch
from mavstream_server.queries.owner_quotas import OwnerQuotas
from mavstream_server.queries.placement import Placement
from mavstream_server.queries.planning import validation as specs
from mavstream_server.queries.planning.planner import QueryPlanner, Verdict
from mavstream_server.queries.planning.work import Planned
from mavstream_server.queries.query import Query, new_id
from mavstream_server.queries.registry import QueryRegistry
from mavstream_server.queries.replacement_records import ReplacementRecords
from mavstream_server.queries.replacing import QueryReplacement
from mavstream_server.queries.resuming import QueryResuming
from mavstream_server.queries.start_times import StartTimes
from mavstream_server.queries.stream_readers import StreamReaders
from mavstream_server.queries.trials import Trials
from mavstream_server.queries.views.delivery import Durability
from mavstream_server.queries.views.metrics import MetricsCache, describe
from mavstream_server.queries.views.queries import QueryViews
from mavstream_server.results.service import ResultService
from mavstream_server.supervisor.crash import Crash
from mavstream_server.supervisor.engine_link import EngineLink, EngineRefused
from mavstream_server.tables.store import TableStore

_log = logging.getLogger("mavstream.queries")
_SCOPE = "/v1/queries"
_NO_COLUMNS = Schema(())


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
        self._streams = streams
        self._tables: Mapping[str, Schema] = tables.schemas()
        self._shapes = ReadableShapes(streams.shapes(), registry)
        self._now_us = now_us
        self.metrics = MetricsCache(link)
        self._durability = Durability.of(settings)
        self.views = QueryViews(
            registry,
            self.metrics,
            results,
            readers,
            self._shapes,
            self._tables,
            self._typed_plan,
            self._durability,
        )
        self.load = LoadWatch(
            self.metrics, streams, lambda after, most: registry.select(after, most, placed=True)
        )
        self.admission = AdmissionControl(self.load, self.priorities, registry.targets, admission)
        self.planner = QueryPlanner(
            self._shapes, self._tables, self.priorities, self._has_class, self.admission
        )
        self.trials = Trials(self.planner, settings.streams_directory, settings.tables_directory)
        self.start_times = StartTimes(now_us, self._begin)
        checkpoints = CheckpointStore(settings.checkpoints_directory)
        self._finisher = QueryFinisher(
            catalog, registry, readers, self.start_times, self.metrics, results, checkpoints
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
        self._resuming = QueryResuming(
            catalog, registry, readers, streams, self.planner, self.placement, self._crashes, self._has_class
        )
        self.quotas = OwnerQuotas(registry, self.metrics, self._fail)
        self._changes = QueryChanges(
            catalog, registry, self.placement, self.start_times, self._has_class, self._begin_now
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
            self._add,
        )

    async def start(self, *, new_epochs: bool = False) -> None:
        """Load the queries of the catalog and begin to start those that are to run.

        With `new_epochs` they continue under new epochs: offsets may stand for other results than before.
        """
        for name, priority in self.priorities().items():
            self.set_priority(name, priority)
        owners = self._catalog.owners.all("query")
        for record, needed in in_reading_order(self._catalog.queries()):
            plan = self._typed(record) if needed else None
            if new_epochs and record.final_state is None:
                record = record._replace(epoch=self._catalog.next_epoch(record.id))
            self._enter(record, plan, owners.get(record.id))
        if self._settings.checkpoint_interval is None:
            # Those of an earlier run do not know what has happened since.
            shutil.rmtree(self._settings.checkpoints_directory, ignore_errors=True)
        self.placement.hold_checkpoints(query for query in self.registry if query.final is None)
        self._place_all()

    async def stop(self) -> None:
        """Stop starting queries; running ones end with the engine and are started again with the next one."""
        self.start_times.stop()
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
        fingerprint = await self.planner.fingerprint(data) if key is not None else ""
        if (known := self._known(key, fingerprint, principal)) is not None:
            return await self._registered_before(known, key)
        await self.quotas.check_memory(principal)
        planned = await self.planner.plan(data)
        # Nothing waits from here until the query is in the catalog.
        if (known := self._known(key, fingerprint, principal)) is not None:
            return await self._registered_before(known, key)
        return await self._add(planned, principal, key, fingerprint)

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

    async def _add(
        self, planned: Planned, principal: Principal, key: str | None = None, fingerprint: str = ""
    ) -> QueryInfo:
        """Register a query that was planned, and start it."""
        spec, plan, applicant = planned
        principal.require_class(spec.class_)
        for stream in plan_streams(plan, self.registry):
            principal.require_stream(stream)
        require_readable(plan, spec.from_, self.registry)
        if len(self.registry) >= self._settings.max_queries:
            raise TooMany(
                f"{len(self.registry)} queries are registered, ended ones included, which is the limit: "
                "remove some with DELETE /v1/queries/{id}",
                code="too_many_queries",
            )
        self.quotas.check_count(principal)
        spec = self._named(spec)
        admission = None if applicant is None else self.admission.admit(applicant)
        query = self._enter(self._record(spec, key, fingerprint, principal), plan, principal.name)
        if not query.scheduled:
            self._hold(query)
            await self.placement.place(query)
        return describe(query, None, 0, self._durability).model_copy(update={"admission": admission})

    def _named(self, spec: QuerySpec) -> QuerySpec:
        """Return a new query's specification with a free name; raises Conflict if the given one is taken."""
        names = self.registry.names
        if "name" in spec.model_fields_set:
            names.require_free("query", spec.name)
            return spec
        return spec.model_copy(update={"name": names.free(spec.name)})

    def _hold(self, query: Query) -> None:
        """Fix the start position of a query that reads from now on, however late the engine starts it."""
        if query.record.spec.from_ is ReadFrom.NOW:
            self._readers.hold(query, self._ends(query))

    def _ends(self, query: Query) -> dict[str, int]:
        ends = {name: self._streams.info(name).position for name in query.streams}
        upstream = {name: self.registry.get(id_) for name, id_ in query.upstream.items()}
        return ends | {name: self.results.of(one).end for name, one in upstream.items()}

    def _begin(self, query: Query) -> None:
        """Start a query whose start time has passed, with the rows that arrived since."""
        self._unschedule(query)
        self._readers.keep(query, self._ends(query))
        self.placement.place_soon(query)

    async def _begin_now(self, query: Query) -> None:
        """Start a scheduled query before its time."""
        self._unschedule(query)
        self._hold(query)
        await self.placement.place(query)

    def _unschedule(self, query: Query) -> None:
        self.start_times.forget(query)
        query.scheduled = False
        self._readers.add(query)
        self.registry.note(query)

    def _record(
        self, spec: QuerySpec, key: str | None, fingerprint: str, principal: Principal
    ) -> QueryRecord:
        """Write a new query and its idempotency key to the catalog, atomically."""
        id_ = new_id(spec.name)
        while id_ in self.registry:
            id_ = new_id(spec.name)
        with self._catalog.transaction():
            record = self._catalog.add_query(id_, spec, self._now_us(), principal.name)
            if key is not None:
                self._catalog.remember(key, principal.scope(_SCOPE), fingerprint, id_)
        return record

    def _known(self, key: str | None, fingerprint: str, principal: Principal) -> str | None:
        """Return the query that was registered with an idempotency key; raises Conflict."""
        return None if key is None else self._catalog.idempotent(key, principal.scope(_SCOPE), fingerprint)

    async def _registered_before(self, id_: str, key: str | None) -> QueryInfo:
        if id_ not in self.registry:
            raise Conflict(
                f"idempotency key '{key}' registered query '{id_}', which was removed since: use a new key",
                code="idempotency_key_reused",
            )
        return await self.views.info(id_)

    def _has_class(self, name: str) -> bool:
        try:
            self._catalog.class_(name)
        except (NotFound, UnicodeEncodeError):
            return False
        return True

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
        return {record.spec.name: record.spec.priority for record in self._catalog.classes()}

    def remove_class(self, name: str, version: int | None = None) -> None:
        """Remove a class; raises NotFound, WrongVersion, and Conflict if queries in it have not ended."""
        self._catalog.class_(name)
        if name == DEFAULT_CLASS:
            raise Conflict(
                f"class '{name}' always exists, for queries that name none: change its priority instead",
                code="default_class",
            )
        if users := [
            query.name for query in self.registry if query.final is None and query.class_name == name
        ]:
            raise Conflict(
                f"class '{name}' has queries that have not ended, {listed(sorted(users))}: move them to "
                "another class, or stop or remove them first",
                code="class_in_use",
            )
        self._catalog.remove_class(name, version)
        self.registry.importance.remove_class(name)

    def set_priority(self, class_name: str, priority: int) -> None:
        """Have ingest and delivery follow the priority of a class; the engine is told by the caller."""
        self.registry.importance.set_priority(class_name, priority)

    def users(self, stream: str) -> list[str]:
        """Return the ids of the queries that read a stream and have not ended."""
        return self._readers.queries(stream)

    def table_users(self, table: str) -> list[str]:
        """Return the ids of the queries that join a stored table and have not ended."""
        return [query.id for query in self.registry.joining(table)]

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
            typed = await self.planner.type_plan(query.record.spec.model_copy(update={"plan": plan}))
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

    # Catalog

    def _enter(self, record: QueryRecord, plan: TypedPlan | None, owner: str | None) -> Query:
        query = Query(record, plan, lambda: self._schema_of(record), owner)
        if plan is not None:
            query.beyond = plan_origins(plan, self.registry) - query.origins
        query.scheduled = (
            query.final is None and not query.begun and self.start_times.is_ahead(record.spec.start_at)
        )
        self.registry.enter(query)
        if query.final is None:
            self._readers.add(query)
        if query.scheduled:
            self.start_times.add(query)
        return query

    async def _typed_plan(self, record: QueryRecord) -> TypedPlan | None:
        """Return the typed plan of an ended query, or None if it no longer matches."""
        try:
            return await self.planner.type_plan(record.spec)
        except InvalidObject:
            return None

    def _typed(self, record: QueryRecord) -> TypedPlan | None:
        """Return the typed plan, or None if it no longer matches: streams of ended queries may be removed."""
        try:
            return specs.type_plan(record.spec, self._shapes, self._tables)
        except InvalidObject:
            return None

    def _schema_of(self, record: QueryRecord) -> Schema:
        """Return the result schema of a query that ended before this server started, from its log."""
        try:
            return load_description(self._settings.results_directory / record.id).schema
        except LogError:
            plan = self._typed(record)
            return _NO_COLUMNS if plan is None else plan.schema
