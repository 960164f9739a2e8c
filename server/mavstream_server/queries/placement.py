"""Placement: brings queries into the engine, again after its death, and knows what they need of streams."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from mavstream_protocol.queries import ReadFrom
from mavstream_protocol.utility import infer_utility
from mavstream_protocol.wire.resources import ActualState, DesiredState
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.core.errors import Conflict, NotFound, ServiceError, StorageFailed, StorageFull
from mavstream_server.optimizer.monitor import is_watched
from mavstream_server.queries.finishing import QueryFinisher
from mavstream_server.queries.query import Query
from mavstream_server.queries.start import latency_target, start_command
from mavstream_server.queries.stream_readers import StreamReaders
from mavstream_server.queries.table_joins import index_tables
from mavstream_server.results.service import ResultService
from mavstream_server.supervisor.engine_link import EngineLink, EngineRefused, EngineUnavailable
from mavstream_server.tables.store import TableStore

_log = logging.getLogger("mavstream.queries")

_RETRY_S = 1.0
# Starts under way at a time: enough to keep the engine busy, few enough that others get their turn.
_AT_ONCE = 16
_THERE, _UNKNOWN = "object_in_use", "unknown_object"


class Placement:
    """Starts queries in the engine, and brings the engine to what is wanted of them."""

    def __init__(
        self,
        streams: Path,
        catalog: Catalog,
        link: EngineLink,
        readers: StreamReaders,
        finisher: QueryFinisher,
        results: ResultService,
        tables: TableStore,
    ) -> None:
        """`streams` is the directory of the stream logs."""
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

    # Into the engine

    def place_all(self, queries: Iterable[Query]) -> None:
        """Begin to place queries, in this order; what waited before is forgotten."""
        self._queue = deque(queries)
        self._keep_placing()

    def place_soon(self, query: Query) -> None:
        """Begin to place a query, behind those that wait; without an engine it waits for one."""
        self._queue.append(query)
        self._keep_placing()

    async def settled(self) -> None:
        """Return when nothing waits to be placed, but for an engine."""
        while self._placing is not None and not self._placing.done():
            await asyncio.wait((self._placing,))

    async def stop(self) -> None:
        """Place no more."""
        self._stopped = True
        if self._placing is not None:
            self._placing.cancel()
            await asyncio.wait((self._placing,))

    def _keep_placing(self) -> None:
        if not self._stopped and (self._placing is None or self._placing.done()):
            self._placing = asyncio.create_task(self._place_queued())

    async def _place_queued(self) -> None:
        """Place what waits; without an engine, whoever hears of the next one begins again."""
        tried: set[str] = set()
        while self._queue and self._link.ready:
            await asyncio.gather(*(self._place_in_turn(tried) for _ in range(_AT_ONCE)))

    async def _place_in_turn(self, tried: set[str]) -> None:
        """Place one query after the other; several do so at once, and commands leave in the queue's order."""
        while self._queue and self._link.ready:
            query = self._queue.popleft()
            if query.id in tried:
                await asyncio.sleep(_RETRY_S)  # all were tried once: the engine is slow
                tried.clear()
            tried.add(query.id)
            try:
                await self.place(query)
            except NotFound:
                continue  # it was removed while it waited
            except (StorageFull, StorageFailed) as error:
                self._postpone(query, error)

    async def place(self, query: Query) -> None:
        """Start a query in the engine, unless it is there or has ended; without an engine it waits."""
        async with query.lock:
            if query.placed or query.scheduled or query.final is not None or not self._link.ready:
                return
            if query.plan is None:
                self._finisher.finish(
                    query, ActualState.FAILED, "its plan does not fit its streams and tables any more"
                )
                return
            try:
                earlier = query.record.spec.from_ is ReadFrom.EARLIEST
                # Indexing a large table would block the engine.
                await index_tables(self._tables, query, earlier=earlier)
                await self._start(query)
            except EngineUnavailable as error:
                self._postpone(query, error)
            except EngineRefused as error:
                self._finisher.finish(query, ActualState.FAILED, error.detail)
        if self._queue:
            self._keep_placing()

    def _postpone(self, query: Query, error: ServiceError) -> None:
        _log.warning("query waits to be started", extra={"query": query.id, "reason": str(error)})
        self._queue.append(query)

    async def _start(self, query: Query) -> None:
        for stream in query.streams - self._attached:
            await self._attach(stream)
        query.record = query.record._replace(epoch=self._catalog.next_epoch(query.id))
        command = start_command(query, self._readers.start_positions(query))
        try:
            await self._link.start_query(command)
        except EngineRefused as error:
            if error.code not in (_THERE, _UNKNOWN):
                raise
            # It was started behind a timeout, or a stream was detached meanwhile: both can be made good.
            await self._link.forget_query(query.id)
            for stream in query.streams:
                await self._attach(stream)
            await self._link.start_query(command)
        if query.final is None:
            query.placed, query.paused, query.begun = True, command.paused, True
            query.placed_class, query.placed_qos = command.class_name, query.record.spec.qos
            self._readers.release(query)
        self._results.changed(query.id)

    async def _attach(self, stream: str) -> None:
        await self._link.attach_stream(stream, self._streams / stream)
        self._attached.add(stream)

    async def enact(self, query: Query) -> None:
        """Bring the engine to what is wanted of a query; the caller holds its lock.

        What it cannot be told because it is not there is done when it is back.
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
        """Let a query that the engine has end at another time; the caller holds its lock.

        Raises EngineRefused (`stop_at_passed`). An engine that is away needs not be told.
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
            await link.resume_query(id_)
            query.paused = False

    async def _tell_targets(self, query: Query) -> None:
        link, qos = self._link, query.record.spec.qos
        assert query.plan is not None
        await link.set_targets(query.id, latency_target(qos), infer_utility(qos, query.plan))
        if not is_watched(qos):
            # The optimizer does not know it any more, so that nobody else takes this back.
            await link.shed_rows(query.id, 0.0)
            await link.weigh_query(query.id, 1)
        query.placed_qos = qos

    async def forget(self, query: Query) -> None:
        """Take a query out of the engine, whatever its state; the caller holds its lock."""
        try:
            await self._link.forget_query(query.id)
        except EngineUnavailable:
            if self._link.ready:
                raise  # it may still write its results
        self._finisher.leave(query)
