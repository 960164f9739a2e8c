"""Replacement: a running query continues with another specification, without lost or repeated rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from mavstream_protocol.admission import AdmissionEstimate
from mavstream_protocol.errors import ProblemItem
from mavstream_protocol.instants import format_instant
from mavstream_protocol.queries import Mode, QuerySpec
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_protocol.utility import infer_utility
from mavstream_protocol.wire.resources import DesiredState, QueryChange, QueryInfo
from mavstream_protocol.wire.seams import Seam
from mavstream_server.core.errors import Conflict, NotFound, Refused, WrongVersion
from mavstream_server.core.principal import Principal
from mavstream_server.engine.process.messages import ReplacePlan
from mavstream_server.queries.admission_control import AdmissionControl
from mavstream_server.queries.chains import check_replacement, plan_streams, require_readable
from mavstream_server.queries.lifecycle.beginning import QueryBeginning
from mavstream_server.queries.lifecycle.changes import QueryChanges
from mavstream_server.queries.lifecycle.placement import Placement
from mavstream_server.queries.lifecycle.replacement_records import Readers, ReplacementRecords, seam_of
from mavstream_server.queries.planning import validation as specs
from mavstream_server.queries.planning.planner import QueryPlanner
from mavstream_server.queries.planning.work import Planned
from mavstream_server.queries.query import Query
from mavstream_server.queries.registry import QueryRegistry
from mavstream_server.results.service import ResultService
from mavstream_server.supervisor.engine_link import EngineLink, EngineRefused, EngineUnavailable

_ATTEMPTS = 25
"""Earlier rows are read again, and large state is written, for longer than the engine's reply is waited for;
asking again is safe."""
_OF_THE_PLAN = ("plan", "on_error", "memory_limit")
"""What the engine gets with a plan."""

Add = Callable[[Planned, Principal], Awaitable[QueryInfo]]


class QueryReplacement:
    """Puts specifications under the names of queries: new ones, changed options, and other plans."""

    def __init__(
        self,
        registry: QueryRegistry,
        planner: QueryPlanner,
        link: EngineLink,
        placement: Placement,
        changes: QueryChanges,
        records: ReplacementRecords,
        admission: AdmissionControl,
        results: ResultService,
        beginning: QueryBeginning,
        add: Add,
    ) -> None:
        """`add` registers a query that was planned."""
        self._registry = registry
        self._planner = planner
        self._link = link
        self._placement = placement
        self._changes = changes
        self._records = records
        self._admission = admission
        self._results = results
        self._beginning = beginning
        self._add = add

    async def put(
        self, ref: str, data: object, version: int | None, principal: Principal
    ) -> tuple[Query, AdmissionEstimate | None] | QueryInfo:
        """Register a query under a name, or change the one that has it; returns which.

        Raises NotFound for an id that there is not, Refused for another name in the body, WrongVersion,
        Forbidden, Conflict, InvalidQuery, EngineRefused and EngineUnavailable.
        """
        self._owned(ref, principal)
        planned = await self._planner.plan(data)
        # Nothing waits from here until the query is in the catalog.
        query = self._owned(ref, principal)
        planned = planned._replace(spec=_named(planned.spec, ref if query is None else query.name))
        if query is None:
            if version is not None:
                raise NotFound.query(ref)
            return await self._add(planned, principal)
        principal.require_class(planned.spec.class_)
        for stream in plan_streams(planned.plan, self._registry):
            principal.require_stream(stream)
        return query, await self.replace(query, planned, version)

    def _owned(self, ref: str, principal: Principal) -> Query | None:
        """Return the query with an id or name, None if there is none; raises Forbidden for another's."""
        query = self._registry.find(self._registry.id_of(ref))
        if query is not None:
            principal.require_owner(f"query '{query.id}'", query.owner)
        elif "-" in ref:
            raise NotFound.query(ref)  # an id, which cannot be given
        return query

    async def replace(self, query: Query, planned: Planned, version: int | None) -> AdmissionEstimate | None:
        """Change a query to another specification, all of it or nothing; returns the admission estimate."""
        _check_backend(query, planned.spec)
        if query.scheduled:
            async with query.lock:
                if query.scheduled:  # it may have begun, or been removed, while this waited for the lock
                    try:
                        return await self._rewrite(query, planned, version)
                    finally:
                        query.getting = None
        before, spec = query.record.spec, _after_start(query, planned.spec)
        if all(getattr(spec, name) == getattr(before, name) for name in _OF_THE_PLAN):
            check_replacement(query, spec, planned.plan, self._registry)
            await self._changes.make(query, _options(before, spec), version, derive=spec.derive)
            return None
        async with query.lock:
            self._check_present(query, version)
            _check_state(query)
            check_replacement(query, spec, planned.plan, self._registry)
            estimate = None if planned.applicant is None else self._admission.admit(planned.applicant)
            await self._replace(query, spec, planned.plan, version)
        return estimate

    def _check_present(self, query: Query, version: int | None) -> None:
        """Raise NotFound if a query was removed while its lock was waited for, and WrongVersion."""
        self._registry.get(query.id)
        if version is not None and version != query.record.version:
            raise WrongVersion(f"query '{query.id}'", version, query.record.version)

    async def _rewrite(self, query: Query, planned: Planned, version: int | None) -> AdmissionEstimate | None:
        """Change a query that has not begun: everything may change; the caller holds its lock."""
        spec, plan = planned.spec, planned.plan
        self._check_present(query, version)
        check_replacement(query, spec, plan, self._registry)
        require_readable(plan, spec.from_, self._registry)
        estimate = None if planned.applicant is None else self._admission.admit(planned.applicant)
        readers = await self._readers_after(query, spec, plan)
        if not query.scheduled:
            raise Conflict(f"query '{query.id}' has begun meanwhile: try again", code="wrong_state")
        self._records.rewrite(query, spec, plan, readers, version)
        self._results.changed(query.id)
        self._beginning.reschedule(query)
        return estimate

    async def _replace(self, query: Query, spec: QuerySpec, plan: TypedPlan, version: int | None) -> None:
        stop_at = query.record.spec.stop_at
        if spec.stop_at != stop_at:
            await self._placement.set_stop_time(query, spec.stop_at)
        number = query.running_plans.add(spec.plan, plan)
        try:
            readers = await self._readers_after(query, spec, plan)
            await self._placement.prepare(plan)
            self._records.begin(query, spec, plan, version)
            seam = await self._tell(query, spec, plan, number)
        except (EngineRefused, Conflict):
            self._records.drop(query)
            query.running_plans.forget(number)
            if spec.stop_at != stop_at:
                await self._placement.set_stop_time(query, stop_at)
            raise
        finally:
            query.getting = None
        # Also if the catalog fails: subscribers get what the new plan answers.
        query.seams[seam.revision] = seam
        self._records.complete(query, spec, plan, readers, seam)
        query.running_plans.registered = number
        self._results.changed(query.id)
        await self._placement.enact(query)

    async def _readers_after(self, query: Query, spec: QuerySpec, plan: TypedPlan) -> Readers:
        """Return those that read a query with their plans as they are after its replacement.

        No other begins to read it until then. Raises Conflict if one of them would not answer as before.
        """
        query.getting = plan.results(query.id, derived=spec.derive)
        return await self._records.readers_with(query, query.getting)

    async def _tell(self, query: Query, spec: QuerySpec, plan: TypedPlan, number: int) -> Seam:
        command = ReplacePlan(
            query.id,
            plan,
            number,
            spec.plan.model_dump_json(),
            query.revision + 1,
            spec.on_error,
            spec.memory_limit,
            infer_utility(spec.qos, plan),
        )
        for attempt in range(_ATTEMPTS):
            try:
                replaced = await self._link.replace_plan(command)
                break
            except EngineUnavailable:
                # Without an engine the next one goes on with the plan that the last checkpoint has.
                if not self._link.ready or attempt == _ATTEMPTS - 1:
                    raise
        assert replaced is not None
        return seam_of(command.revision, replaced.offset, replaced.lacking)


def _named(spec: QuerySpec, name: str) -> QuerySpec:
    """Return a specification with the name of the address; raises Refused if the body has another one."""
    if "name" in spec.model_fields_set and spec.name != name:
        detail = f"the address names query '{name}' and the body '{spec.name}': give the same name, or none"
        item = ProblemItem(pointer="name", code="name_mismatch", detail=detail)
        raise Refused(detail, code="name_mismatch", errors=(item,))
    return specs.changed(spec, {"name": name})


def _check_backend(query: Query, spec: QuerySpec) -> None:
    """Raise Conflict if a specification has another backend than a query."""
    backend = query.record.spec.backend
    if spec.backend is not backend:
        raise Conflict(
            f"query '{query.id}' has backend '{backend.value}', and the specification "
            f"'{spec.backend.value}': register it under another name",
            code="not_replaceable",
        )


def _after_start(query: Query, spec: QuerySpec) -> QuerySpec:
    """Return a specification with what was decided when a query began; raises Conflict if that differs."""
    before = query.record.spec
    if spec.start_at not in (None, before.start_at):
        since = "" if before.start_at is None else f" at {format_instant(before.start_at)}"
        raise Conflict(
            f"query '{query.id}' has begun{since}, and start_at says {format_instant(spec.start_at or 0)}: "
            "a start time can be changed while the query is scheduled; leave start_at out, or register the "
            "specification under another name",
            code="already_started",
        )
    if spec.mode is not before.mode and before.mode is Mode.CONTINUOUS:
        raise Conflict(
            f"query '{query.id}' runs continuously, and mode says one_time: such a query answers the first "
            "window from its start on; leave mode out, or register the specification under another name",
            code="not_replaceable",
        )
    return specs.changed(spec, {"from_": before.from_, "start_at": before.start_at})


def _options(before: QuerySpec, spec: QuerySpec) -> QueryChange:
    """Return the changes between two specifications with the same plan."""
    values: dict[str, Any] = {}
    for name in ("qos", "stop_at"):
        if getattr(before, name) != getattr(spec, name):
            values[name] = getattr(spec, name)
    if before.class_ != spec.class_:
        values["class_"] = spec.class_
    return QueryChange(**values)


def _check_state(query: Query) -> None:
    if query.final is None and query.outside:
        raise Conflict(
            f"query '{query.id}' has backend '{query.record.spec.backend.value}', where plans are not "
            "replaced: put the new one under another name",
            code="not_replaceable",
        )
    if query.record.spec.mode is Mode.ONE_TIME:
        raise Conflict(
            f"query '{query.id}' is a one-time query, which answers one window: put it under another "
            "name, or delete the query first",
            code="not_replaceable",
        )
    if query.final is None and query.placed and query.record.desired is not DesiredState.STOPPED:
        return
    if query.final is not None:
        todo = "delete it first, or put the specification under another name"
    else:
        todo = "its plan can be replaced while it runs; try again then"
    raise Conflict(f"query '{query.id}' is {query.state.value}: {todo}", code="wrong_state")
