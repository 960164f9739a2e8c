"""Placement: brings queries into the engine, again after its death, and knows what they need of streams."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from mavstream_protocol.wire.resources import ActualState, DesiredState
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.core.errors import Conflict, NotFound, ServiceError, StorageFailed, StorageFull
from mavstream_server.queries.query import Query
from mavstream_server.queries.start import start_command, waits_for_time
from mavstream_server.supervisor.engine_link import EngineLink, EngineRefused, EngineUnavailable

_log = logging.getLogger("mavstream.queries")

_RETRY_S = 1.0
# Starts under way at a time: enough to keep the engine busy, few enough that others get their turn.
_AT_ONCE = 16
_THERE, _UNKNOWN = "object_in_use", "unknown_object"

Finish = Callable[[Query, ActualState, str | None], None]


class Placement:
    """Queries that can run, by the streams that they read, and the commands that put them into the engine."""

    def __init__(
        self,
        streams: Path,
        catalog: Catalog,
        link: EngineLink,
        finish: Finish,
        changed: Callable[[str], None],
        clocked: Callable[[str, bool], None],
        prepare: Callable[[Query], Awaitable[None]],
    ) -> None:
        """`clocked` is told whether time must pass in a stream even where no rows come.

        `prepare` does what takes long and would else be done by the engine when the query needs it.
        """
        self._streams = streams
        self._catalog = catalog
        self._link = link
        self._finish = finish
        self._changed = changed
        self._clocked = clocked
        self._prepare = prepare
        # By stream: who reads it, and whether that query waits for time to pass.
        self._users: dict[str, dict[str, bool]] = {}
        self._waiting: Counter[str] = Counter()
        # Where queries are to begin that the engine has not got yet: by query, and the same by stream.
        self._begins: dict[str, Mapping[str, int]] = {}
        self._held: dict[str, dict[str, int]] = {}
        self._attached: set[str] = set()
        self._queue: deque[Query] = deque()
        self._placing: asyncio.Task[None] | None = None
        self._stopped = False

    # Streams

    def enter(self, query: Query) -> None:
        """Know a query that can run."""
        waits = query.plan is not None and waits_for_time(query.plan)
        for stream in query.streams:
            self._users.setdefault(stream, {})[query.id] = waits
            self._count(stream, int(waits))

    def leave(self, query: Query) -> None:
        """Forget a query that has ended; it needs nothing any more."""
        query.placed = query.paused = False
        self._let_go(query)
        for stream in query.streams:
            self._count(stream, -int(self._users.get(stream, {}).pop(query.id, False)))

    def _count(self, stream: str, change: int) -> None:
        before = self._waiting[stream]
        self._waiting[stream] += change
        if bool(before) is not bool(self._waiting[stream]):
            self._clocked(stream, bool(self._waiting[stream]))

    def users(self, stream: str) -> list[str]:
        """Return the queries that read a stream and can run."""
        return list(self._users.get(stream, ()))

    def hold(self, query: Query, positions: Mapping[str, int]) -> None:
        """Let a new query begin at these positions, whenever the engine comes to it."""
        self._begins[query.id] = positions
        for stream, position in positions.items():
            self._held.setdefault(stream, {})[query.id] = position

    def needed(self, stream: str) -> tuple[int | None, str | None]:
        """Return the lowest position that a query needs of a stream, and which query that is."""
        need = self._link.needs.get(stream)
        lowest = [(position, id_) for id_, position in self._held.get(stream, {}).items()]
        # Whoever it was told for may have ended since: others may stand just behind.
        if need is not None and self._users.get(stream):
            lowest.append((need.position, need.query))
        return min(lowest, default=(None, None))

    def _let_go(self, query: Query) -> None:
        self._begins.pop(query.id, None)
        for stream in query.streams:
            self._held.get(stream, {}).pop(query.id, None)

    # Into the engine

    def place_all(self, queries: Iterable[Query]) -> None:
        """Begin to place queries, in this order; what waited before is forgotten."""
        self._queue = deque(queries)
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
            if query.placed or query.final is not None or not self._link.ready:
                return
            if query.plan is None:
                self._finish(
                    query, ActualState.FAILED, "its plan does not fit its streams and tables any more"
                )
                return
            try:
                await self._prepare(query)
                await self._start(query)
            except EngineUnavailable as error:
                self._postpone(query, error)
            except EngineRefused as error:
                self._finish(query, ActualState.FAILED, error.detail)
        if self._queue:
            self._keep_placing()

    def _postpone(self, query: Query, error: ServiceError) -> None:
        _log.warning("query waits to be started", extra={"query": query.id, "reason": str(error)})
        self._queue.append(query)

    async def _start(self, query: Query) -> None:
        for stream in query.streams - self._attached:
            await self._attach(stream)
        query.record = query.record._replace(epoch=self._catalog.next_epoch(query.id))
        command = start_command(query, self._begins.get(query.id))
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
            query.placed_class = command.class_name
            self._let_go(query)
        self._changed(query.id)

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
            self._finish(query, ActualState.STOPPED, None)

    async def _tell(self, query: Query, desired: DesiredState) -> None:
        link, id_ = self._link, query.id
        if query.placed_class != query.class_name:
            await link.reclass(id_, query.class_name)
            query.placed_class = query.class_name
        if desired is DesiredState.STOPPED:
            await link.stop_query(id_)
        elif desired is DesiredState.PAUSED and not query.paused:
            await link.pause_query(id_)
            query.paused = True
        elif desired is DesiredState.RUNNING and query.paused:
            await link.resume_query(id_)
            query.paused = False

    async def forget(self, query: Query) -> None:
        """Take a query out of the engine, whatever its state; the caller holds its lock."""
        try:
            await self._link.forget_query(query.id)
        except EngineUnavailable:
            if self._link.ready:
                raise  # it may still write its results
        self.leave(query)
