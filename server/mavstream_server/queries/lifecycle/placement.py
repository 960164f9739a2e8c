"""Placement: starts queries in the engine, again after it died, and records which rows they need."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from mavstream_protocol.errors import InvalidObject
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.queries import ReadFrom
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_protocol.utility import infer_utility
from mavstream_protocol.wire.resources import ActualState, DesiredState
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.core.errors import Conflict, NotFound, ServiceError, StorageFailed, StorageFull
from mavstream_server.engine.checkpoints.store import CheckpointStore, StoredCheckpoint
from mavstream_server.engine.process.messages import AttachResults, DetachResults, StartQuery
from mavstream_server.optimizer.monitor import is_watched
from mavstream_server.optimizer.running_plans import REGISTERED
from mavstream_server.queries.lifecycle.finishing import QueryFinisher
from mavstream_server.queries.lifecycle.replacement_records import ReplacementRecords
from mavstream_server.queries.query import Query
from mavstream_server.queries.registry import QueryRegistry
from mavstream_server.queries.start import latency_target, start_command
from mavstream_server.queries.stream_readers import StreamReaders
from mavstream_server.queries.table_joins import index_tables
from mavstream_server.results.service import ResultService
from mavstream_server.supervisor.engine_link import EngineLink, EngineRefused, EngineUnavailable
from mavstream_server.tables.store import TableStore

_log = logging.getLogger("mavstream.queries")

_RETRY_S = 1.0
# Concurrent starts: enough to keep the engine busy, few enough to leave time to other requests.
_CONCURRENT_STARTS = 16
_THERE, _UNKNOWN = "object_in_use", "unknown_object"


class Placement:
    """Starts queries in the engine and brings them to their desired state there."""

    def __init__(
        self,
        streams: Path,
        catalog: Catalog,
        link: EngineLink,
        readers: StreamReaders,
        finisher: QueryFinisher,
        results: ResultService,
        tables: TableStore,
        checkpoints: CheckpointStore,
        replacements: ReplacementRecords,
        registry: QueryRegistry,
    ) -> None:
        """`streams` is the directory of the stream logs."""
        self._checkpoints = checkpoints
        self._replacements = replacements
        self._registry = registry
        self._streams = streams
        self._catalog = catalog
        self._link = link
        self._readers = readers
        self._finisher = finisher
        self._results = results
        self._tables = tables
        self._attached: set[str] = set()
        self._queue: deque[Query] = deque()
        self._placing: asyncio.Task[None] | None = None
        self._stopped = False

    # Starting in the engine

    def place_all(self, queries: Iterable[Query]) -> None:
        """Start to place queries, in this order; replaces the current queue."""
        self._queue = deque(queries)
        self._ensure_placing()

    def place_soon(self, query: Query) -> None:
        """Append a query to the placement queue; without an engine it is placed when there is one."""
        self._queue.append(query)
        self._ensure_placing()

    async def settled(self) -> None:
        """Wait until the queue is empty or there is no engine."""
        while self._placing is not None and not self._placing.done():
            await asyncio.wait((self._placing,))

    @property
    def complete(self) -> bool:
        """Whether no query waits to be placed, or is being placed after an engine has died."""
        return not self._queue and (self._placing is None or self._placing.done())

    async def stop(self) -> None:
        """Stop placing queries."""
        self._stopped = True
        if self._placing is not None:
            self._placing.cancel()
            await asyncio.wait((self._placing,))

    def _ensure_placing(self) -> None:
        if not self._stopped and (self._placing is None or self._placing.done()):
            self._placing = asyncio.create_task(self._place_queued())

    async def _place_queued(self) -> None:
        """Place the queued queries; without an engine, the handler of its restart begins again."""
        tried: set[str] = set()
        while self._queue and self._link.ready:
            await asyncio.gather(*(self._place_in_turn(tried) for _ in range(_CONCURRENT_STARTS)))
        if not self._queue and self._link.ready:
            self._readers.thaw()

    async def _place_in_turn(self, tried: set[str]) -> None:
        """Place queued queries in order; several of these loops run concurrently."""
        while self._queue and self._link.ready:
            query = self._queue.popleft()
            if query.id in tried:
                await asyncio.sleep(_RETRY_S)  # all were tried once: the engine is slow
                tried.clear()
            tried.add(query.id)
            try:
                await self.place(query)
            except NotFound:
                continue  # it was removed while queued
            except (StorageFull, StorageFailed) as error:
                self._postpone(query, error)

    async def place(self, query: Query) -> None:
        """Start a query in the engine, unless it runs or has ended; without an engine it stays queued."""
        async with query.lock:
            waits = query.scheduled or query.outside or not self._link.ready
            if query.placed or waits or query.final is not None:
                return
            if query.plan is None:
                self._finisher.finish(
                    query, ActualState.FAILED, "its plan does not fit its streams and tables any more"
                )
                return
            try:
                earlier = query.record.spec.from_ is ReadFrom.EARLIEST
                # Building the index of a large table would block the engine.
                await index_tables(self._tables, query.plan, earlier=earlier)
                await self._start(query)
            except EngineUnavailable as error:
                self._postpone(query, error)
            except EngineRefused as error:
                self._finisher.finish(query, ActualState.FAILED, error.detail)
        if self._queue:
            self._ensure_placing()

    def _postpone(self, query: Query, error: ServiceError) -> None:
        _log.warning("query waits to be started", extra={"query": query.id, "reason": str(error)})
        self._queue.append(query)

    async def _start(self, query: Query) -> None:
        for stream in query.streams - self._attached:
            await self._attach(stream)
        await self._replacements.settle(query)
        await self._attach_upstream(query.upstream.values())
        if self._registry.readers(query.id):
            await self._attach_results(query)  # before it starts, so that nothing is removed that they need
        for stored in self._checkpoints.stored(query.id):
            if await self._recover(query, stored):
                return
        query.record = query.record._replace(epoch=self._catalog.next_epoch(query.id))
        await self._send(query, start_command(query, self._readers.start_positions(query), again=query.begun))

    async def _recover(self, query: Query, stored: StoredCheckpoint) -> bool:
        """Start a query from a checkpoint, under the same epoch; returns whether that was possible."""
        header, command = stored.header, start_command(query, None, again=False)
        command = replace(command, checkpoint=stored.number, was_paused=header.paused, resumes=query.resumes)
        try:
            plan = None if header.plan is None else Plan.model_validate_json(header.plan)
            if plan is not None and plan != query.record.spec.plan:
                typed = await self._replacements.type_plan(query, plan)
                version = query.running_plans.add(plan, typed)
                command = replace(command, plan=typed, plan_version=version, plan_json=header.plan)
            await self._send(query, command)
        except (EngineRefused, InvalidObject, ValidationError) as error:
            fields = {"query": query.id, "checkpoint": stored.number, "reason": str(error)}
            _log.error("query cannot continue from a checkpoint", extra=fields)
            return False
        return True

    async def _send(self, query: Query, command: StartQuery) -> None:
        """Have the engine start a query."""
        try:
            await self._link.start_query(command, large=query.large)
        except EngineRefused as error:
            if error.code not in (_THERE, _UNKNOWN):
                raise
            # Started despite a timeout, or a stream was detached meanwhile: starting again solves both.
            await self._link.forget_query(query.id)
            for stream in query.streams:
                await self._attach(stream)
            await self._attach_upstream(query.upstream.values())
            await self._link.start_query(command, large=query.large)
        if query.final is None:
            if not query.begun:
                self._catalog.starts.note_begun(query.id)
            query.placed, query.paused, query.begun = True, command.paused, True
            query.running_plans.registered = REGISTERED
            query.placed_class, query.placed_qos = command.class_name, query.record.spec.qos
            self._readers.release(query)
        self._results.changed(query.id)

    async def _attach(self, stream: str) -> None:
        await self._link.attach_stream(stream, self._streams / stream)
        self._attached.add(stream)

    async def prepare(self, plan: TypedPlan) -> None:
        """Have the engine find what a plan reads that a running query is to get."""
        for source in plan.sources:
            if source.query is None:
                await self._attach(source.stream)
        await self._attach_upstream(plan.upstream_queries.values())
        # Rows from before it begins are read again, with the versions that were current then.
        await index_tables(self._tables, plan, earlier=True)

    async def _attach_upstream(self, ids: Iterable[str]) -> None:
        """Let a query read the results of others, which are started before it."""
        for id_ in ids:
            upstream = self._registry.get(id_)
            if not upstream.placed:
                await self.place(upstream)
            await self._attach_results(upstream)

    async def _attach_results(self, query: Query) -> None:
        """Let other queries read the results of a query, from where their checkpoints need them."""
        name, expected = query.name, dict[str, int]()
        for reader in self._registry.readers(query.id):
            stored = [] if reader.placed else self._checkpoints.stored(reader.id)
            positions = stored[-1].header.positions if stored else {}
            if name in positions:
                expected[reader.id] = positions[name]
        over = query.final in (ActualState.FINISHED, ActualState.STOPPED)
        await self._link.attach_results(AttachResults(name, query.id, over, expected), query.schema)

    async def detach_results(self, query: Query) -> None:
        """Close the result log of a query that is removed."""
        with suppress(EngineUnavailable):
            await self._link.call(DetachResults(query.id))

    async def restart(self, query: Query) -> None:
        """Start a query anew, with empty state and a new epoch."""
        async with query.lock:
            if query.final is not None:
                return
            try:
                await self._link.forget_query(query.id)
            except EngineUnavailable:
                return  # it is placed again with the next engine
            finally:
                self._checkpoints.remove(query.id)
            query.placed = query.paused = False
        self.place_soon(query)

    def hold_checkpoints(self, queries: Iterable[Query]) -> None:
        """Retain the rows that the checkpoints of queries need until the engine runs them."""
        for query in queries:
            stored = self._checkpoints.stored(query.id)
            if not stored:
                continue
            header = stored[-1].header
            if header.paused and query.record.desired is DesiredState.RUNNING:
                self._keep(query, query.resumes or {})
            else:
                self._readers.keep(query, header.positions)

    def resumes(self, query: Query, positions: Mapping[str, int]) -> None:
        """Retain the rows that a paused query goes on with until the engine has resumed it."""
        query.resumes = positions
        self._keep(query, positions)

    def _keep(self, query: Query, positions: Mapping[str, int]) -> None:
        self._readers.keep(query, {name: at for name, at in positions.items() if name in query.streams})

    async def enact(self, query: Query) -> None:
        """Bring a query to its desired state in the engine; the caller holds its lock.

        Without an engine, this happens when the query is placed again.
        """
        desired = query.record.desired
        if query.final is not None:
            return
        try:
            if query.placed:
                await self._tell(query, desired)
        except EngineRefused as error:
            if query.final is not None:
                raise Conflict(
                    f"query '{query.id}' ended by itself ({query.final}) before it could become {desired}",
                    code="wrong_state",
                ) from error
            raise
        except EngineUnavailable:
            if self._link.ready:
                raise
        if desired is DesiredState.STOPPED and query.final is None:
            self._finisher.finish(query, ActualState.STOPPED, None)

    async def set_stop_time(self, query: Query, stop_at: int | None) -> None:
        """Change the stop time of a query in the engine; the caller holds its lock.

        Raises EngineRefused (`stop_at_passed`). Does nothing without an engine.
        """
        try:
            if query.placed:
                await self._link.set_stop_time(query.id, stop_at)
        except EngineUnavailable:
            if self._link.ready:
                raise

    async def _tell(self, query: Query, desired: DesiredState) -> None:
        link, id_ = self._link, query.id
        if query.placed_class != query.class_name:
            await link.reclass(id_, query.class_name)
            query.placed_class = query.class_name
        if query.placed_qos != query.record.spec.qos:
            await self._tell_targets(query)
        if desired is DesiredState.STOPPED:
            await link.stop_query(id_)
        elif desired is DesiredState.PAUSED and not query.paused:
            await link.pause_query(id_)
            query.paused = True
        elif desired is DesiredState.RUNNING and query.paused:
            await link.resume_query(id_, query.resumes)
            query.paused = False
            self._readers.release(query)

    async def _tell_targets(self, query: Query) -> None:
        link, qos = self._link, query.record.spec.qos
        assert query.plan is not None
        await link.set_targets(query.id, latency_target(qos), infer_utility(qos, query.plan))
        if not is_watched(qos):
            # The optimizer does not monitor the query any more, so it will not stop the shedding.
            await link.shed_rows(query.id, 0.0)
            await link.weigh_query(query.id, 1)
        query.placed_qos = qos

    async def forget(self, query: Query) -> None:
        """Remove a query from the engine, whatever its state; the caller holds its lock."""
        try:
            if not query.outside:
                await self._link.forget_query(query.id)
        except EngineUnavailable:
            if self._link.ready:
                raise  # it may still write its results
        self._finisher.leave(query)
