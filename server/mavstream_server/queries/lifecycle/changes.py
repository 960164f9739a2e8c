"""Changes of a query's specification: which values may change in which state, and how they take effect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mavstream_protocol.errors import InvalidObject
from mavstream_protocol.queries import QuerySpec
from mavstream_protocol.utility import infer_utility
from mavstream_protocol.wire.resources import DesiredState, QueryChange
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.core.errors import Conflict, WrongVersion
from mavstream_server.queries.lifecycle.placement import Placement
from mavstream_server.queries.lifecycle.start_times import StartTimes
from mavstream_server.queries.planning import validation as specs
from mavstream_server.queries.query import Query
from mavstream_server.queries.registry import QueryRegistry

_VALUES = ("start_at", "stop_at", "qos")


class QueryChanges:
    """Applies changes to queries: in the catalog, in the engine if it runs the query, and in the schedule."""

    def __init__(
        self,
        catalog: Catalog,
        registry: QueryRegistry,
        placement: Placement,
        start_times: StartTimes,
        has_class: Callable[[str], bool],
        begin: Callable[[Query], Awaitable[None]],
        ends: Callable[[Query], Mapping[str, int]],
    ) -> None:
        """`begin` starts a scheduled query before its start time.

        `ends` returns the positions of the next rows to arrive for a query.
        """
        self._catalog = catalog
        self._registry = registry
        self._placement = placement
        self._start_times = start_times
        self._has_class = has_class
        self._begin = begin
        self._ends = ends

    async def make(
        self, query: Query, change: QueryChange, version: int | None, *, derive: bool | None = None
    ) -> None:
        """Make a change, all of it or nothing; with `derive` also whether it is a derived stream.

        Raises WrongVersion, Conflict, InvalidQuery, EngineRefused.
        """
        async with query.lock:
            before = query.record.spec
            if change.state is not None:
                query.check_move(change.state)
            spec = changed_spec(query, change, derive=derive)
            if spec.class_ != before.class_ and not self._has_class(spec.class_):
                raise specs.unknown_class(spec.class_)
            if version is not None and version != query.record.version:
                raise WrongVersion(f"query '{query.id}'", version, query.record.version)
            await self._keep(query, spec, change.state, version)
            await self._placement.enact(query)
            moved = query.scheduled and spec.start_at != before.start_at
            if moved and self._start_times.is_ahead(spec.start_at):
                self._start_times.add(query)
                moved = False
        if moved:
            await self._begin(query)

    async def _keep(
        self, query: Query, spec: QuerySpec, desired: DesiredState | None, version: int | None
    ) -> None:
        """Write a change to the catalog; sends a stop time to the engine first, which may refuse it."""
        before = query.record.spec
        if spec.stop_at != before.stop_at:
            await self._placement.set_stop_time(query, spec.stop_at)
        resumes = None
        if desired is DesiredState.RUNNING and query.record.desired is DesiredState.PAUSED:
            resumes = self._ends(query)  # also if there is no engine now
        try:
            if spec.class_ != before.class_ and not self._has_class(spec.class_):
                raise specs.unknown_class(spec.class_)  # removed while the engine set the stop time
            with self._catalog.transaction():
                record = self._catalog.query(query.id)
                if spec is not before:
                    record = self._catalog.set_spec(query.id, spec, version)
                    version = None
                if resumes is not None:
                    self._catalog.starts.resume(query.id, resumes)
                if (desired is not None and desired is not record.desired) or version is not None:
                    record = self._catalog.set_desired(query.id, desired or record.desired, version)
        except BaseException:
            if spec.stop_at != before.stop_at:
                await self._placement.set_stop_time(query, before.stop_at)
            raise
        query.record = record
        if resumes is not None:
            self._placement.resumes(query, resumes)
        self._registry.note(query)


def changed_spec(query: Query, change: QueryChange, *, derive: bool | None = None) -> QuerySpec:
    """Return the changed specification; raises Conflict, InvalidQuery.

    Returns the same object if nothing changes. Null removes a time, or all targets.
    """
    spec = query.record.spec
    values: dict[str, Any] = {
        name: getattr(change, name) for name in _VALUES if name in change.model_fields_set
    }
    if "qos" in values and values["qos"] is None:
        values["qos"] = type(spec.qos)()
    if change.class_ is not None:
        values["class_"] = change.class_
    if derive is not None:
        values["derive"] = derive
    values = {name: value for name, value in values.items() if value != getattr(spec, name)}
    if not values:
        return spec
    if query.final is not None:
        names = ", ".join(name.rstrip("_") for name in values)
        raise Conflict(
            f"query '{query.id}' has ended ({query.final}), so its {names} cannot be changed; "
            "register it again to run it anew",
            code="wrong_state",
        )
    if "start_at" in values and not query.scheduled:
        raise Conflict(
            f"query '{query.id}' is {query.state.value}: its start_at can be changed while it is scheduled; "
            "register it again to start it at another time",
            code="already_started",
        )
    found = specs.changed(spec, values)
    if "qos" in values and query.plan is not None:
        try:
            infer_utility(found.qos, query.plan)
        except InvalidObject as error:
            raise specs.InvalidQuery(error.items) from None
    return found
