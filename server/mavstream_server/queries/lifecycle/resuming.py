"""Resuming of failed queries: they go on behind the rows that they failed at, with empty state."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mavstream_protocol.errors import ProblemItem
from mavstream_protocol.wire.resources import ActualState, DesiredState, QueryChange
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.core.errors import Conflict
from mavstream_server.engine.checkpoints.store import CheckpointStore
from mavstream_server.ingest.stream_store import StreamStore
from mavstream_server.queries.lifecycle.crashes import QueryCrashes
from mavstream_server.queries.lifecycle.placement import Placement
from mavstream_server.queries.planning.planner import QueryPlanner
from mavstream_server.queries.planning.validation import InvalidQuery, unknown_class
from mavstream_server.queries.query import Query
from mavstream_server.queries.registry import QueryRegistry
from mavstream_server.queries.stream_readers import StreamReaders


class QueryResuming:
    """Starts failed queries again at given positions of their streams."""

    def __init__(
        self,
        catalog: Catalog,
        registry: QueryRegistry,
        readers: StreamReaders,
        streams: StreamStore,
        planner: QueryPlanner,
        placement: Placement,
        crashes: QueryCrashes,
        checkpoints: CheckpointStore,
        has_class: Callable[[str], bool],
    ) -> None:
        self._catalog = catalog
        self._registry = registry
        self._readers = readers
        self._streams = streams
        self._planner = planner
        self._placement = placement
        self._crashes = crashes
        self._checkpoints = checkpoints
        self._has_class = has_class

    async def resume(self, query: Query, change: QueryChange, version: int | None) -> None:
        """Start a failed query again at `skip_to`; streams that are not named go on at their end.

        Raises Conflict, WrongVersion and InvalidQuery.
        """
        async with query.lock:
            _check(query, change)
            plan = await self._planner.type_plan(query.record.spec, self._catalog.seen_fields.of(query.id))
            positions = self._positions(
                query.id, frozenset(source.stream for source in plan.sources), change.skip_to or {}
            )
            if not self._has_class(query.class_name):
                raise unknown_class(query.class_name)
            query.record = self._catalog.reopen(query.id, version)
            query.plan, query.begun, query.suspect = plan, True, False
            self._crashes.forget(query.id)
            self._checkpoints.remove(query.id)  # one may have been written while the query failed
            self._readers.add(query)
            self._readers.hold(query, positions)
            self._registry.note(query)
        await self._placement.place(query)

    def _positions(self, id_: str, streams: frozenset[str], skip_to: Mapping[str, int]) -> dict[str, int]:
        """Return where to start by stream; raises InvalidQuery."""
        items: list[ProblemItem] = []
        positions = {}
        for stream in sorted(streams):
            info = self._streams.info(stream)
            position = positions[stream] = skip_to.get(stream, info.position)
            if not info.begin <= position <= info.position:
                detail = (
                    f"got position {position} of stream '{stream}', which has rows {info.begin} to "
                    f"{info.position}: choose a position between these"
                )
                items.append(ProblemItem(pointer=f"skip_to/{stream}", code="out_of_range", detail=detail))
        for stream in skip_to.keys() - streams:
            detail = f"query '{id_}' does not read stream '{stream}', but {', '.join(sorted(streams))}"
            items.append(ProblemItem(pointer=f"skip_to/{stream}", code="unknown_stream", detail=detail))
        if items:
            raise InvalidQuery(items)
        return positions


def _check(query: Query, change: QueryChange) -> None:
    if query.outside:
        raise Conflict(
            f"query '{query.id}' has backend '{query.record.spec.backend.value}', which does not skip rows: "
            "register another query",
            code="wrong_state",
        )
    if change.state is not DesiredState.RUNNING or change.model_fields_set - {"state", "skip_to"}:
        detail = 'skip_to goes with {"state": "running"} and nothing else: make other changes before or after'
        raise InvalidQuery([ProblemItem(pointer="skip_to", code="invalid_combination", detail=detail)])
    if query.final is not ActualState.FAILED:
        raise Conflict(
            f"query '{query.id}' is {query.state.value}: skip_to is for a query that has failed; "
            "register another query to read other rows",
            code="wrong_state",
        )
