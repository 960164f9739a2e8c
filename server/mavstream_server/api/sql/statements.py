"""Execution of single SQL statements, by the functions of the routes that do the same."""

from __future__ import annotations

from functools import singledispatch

from starlette.requests import Request
from starlette.responses import Response

from mavstream_protocol.errors import MavstreamError
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.scheduling import SchedulerSettings
from mavstream_protocol.sql import statements as sql
from mavstream_protocol.sql.statements import ObjectKind, Statement
from mavstream_protocol.streams import field_specs
from mavstream_protocol.wire.resources import DesiredState, QueryChange
from mavstream_protocol.wire.sql import (
    Changed,
    Created,
    Dropped,
    Explained,
    Inserted,
    Listed,
    Selected,
    SqlResult,
)
from mavstream_protocol.wire.stream_change import StreamChange
from mavstream_server.api.access.audit import REFUSED
from mavstream_server.api.routers import classes, queries, scheduler, streams, tables
from mavstream_server.api.services import Services
from mavstream_server.api.sql import listings
from mavstream_server.api.sql.explain import explain
from mavstream_server.api.sql.routes import StatementRoute, route_of
from mavstream_server.core.errors import Conflict, Refused, problem_of
from mavstream_server.core.principal import Principal


async def run_statement(statement: Statement, services: Services, request: Request) -> SqlResult:
    """Run a statement as the route that does the same: with its roles, its checks and its audit."""
    route = route_of(statement)
    try:
        who = services.auth.check(request, route.roles)
        result = await _run(statement, services, who)
    except MavstreamError as error:
        problem = problem_of(error)
        _audit(route, services, request, problem.status, problem.code)
        raise
    _audit(route, services, request, 200)
    return result


def _audit(
    route: StatementRoute, services: Services, request: Request, status: int, code: str | None = None
) -> None:
    """Record a statement as the request that does the same would be recorded."""
    if status not in REFUSED and (route.reads or (route.appends and status < 400)):
        return
    address = None if request.client is None else request.client.host
    who = services.auth.identify(request)
    services.audit.record(
        route.method, who, address, object=route.path, status=status, code=code, by=request.url.path
    )


@singledispatch
async def _run(statement: Statement, parts: Services, who: Principal) -> SqlResult:
    raise AssertionError(f"statements of type {type(statement).__name__} cannot be run")


@_run.register
async def _select(statement: sql.SelectRows, parts: Services, who: Principal) -> Selected:
    planned = await parts.queries.planner.plan(_document(statement.plan))
    estimate = None if planned.applicant is None else parts.queries.admission.estimate(planned.applicant)
    fields = field_specs(planned.plan.schema)
    return Selected(kind="selected", plan=statement.plan, fields=fields, admission=estimate)


@_run.register
async def _explain(statement: sql.Explain, parts: Services, who: Principal) -> Explained:
    return await explain(statement.plan, parts)


@_run.register
async def _show(statement: sql.Show, parts: Services, who: Principal) -> Listed:
    return await listings.show(statement.kind, parts)


@_run.register
async def _describe(statement: sql.Describe, parts: Services, who: Principal) -> Listed:
    return await listings.describe(statement.name, parts)


@_run.register
async def _create_stream(statement: sql.CreateStream, parts: Services, who: Principal) -> Created:
    info = await streams.create_stream(statement.spec, parts, who, Response())
    return Created(kind="created", object=ObjectKind.STREAM, name=info.name)


@_run.register
async def _add_column(statement: sql.AddColumn, parts: Services, who: Principal) -> Changed:
    change = StreamChange(add_fields=(statement.field,))
    info = await streams.change_stream(statement.stream, change, parts, who)
    told = "added" if info.changed else "was there already"
    return Changed(
        kind="changed",
        object="stream",
        name=statement.stream,
        change=f"column {statement.field.name} {told}",
    )


@_run.register
async def _insert(statement: sql.InsertRows, parts: Services, who: Principal) -> Inserted:
    columns = dict(zip(statement.columns, zip(*statement.rows, strict=True), strict=True))
    listed = {name: list(values) for name, values in columns.items()}
    taken = await streams.insert_rows(statement.stream, listed, parts, who)
    return Inserted(kind="inserted", stream=statement.stream, rows=taken.accepted, position=taken.position)


@_run.register
async def _create_table(statement: sql.CreateTable, parts: Services, who: Principal) -> Created:
    raise Refused(
        f"the server reads no files, and '{statement.file}' is one of the client: use 'mavstream sql' or "
        f"client.sql(), which read it, or upload it with 'mavstream table put {statement.name} FILE'",
        code="file_of_client",
    )


@_run.register
async def _create_class(statement: sql.CreateClass, parts: Services, who: Principal) -> Created:
    spec = statement.query_class
    exists = any(record.spec.name == spec.name for record in parts.catalog.classes())
    if exists and not statement.replace:
        raise Conflict(
            f"class '{spec.name}' exists: write CREATE OR REPLACE CLASS to change it", code="class_exists"
        )
    await classes.put_class(spec.name, spec, parts, Response(), None)
    return Created(kind="created", object=ObjectKind.CLASS, name=spec.name, replaced=exists)


@_run.register
async def _create_query(statement: sql.CreateQuery, parts: Services, who: Principal) -> Created:
    document = statement.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    replaced = False
    if statement.replace:
        info, created = await parts.queries.put(statement.spec.name, document, None, who)
        replaced = not created
    else:
        info = await parts.queries.register(document, None, who)
    return Created(
        kind="created",
        object=ObjectKind.QUERY,
        name=info.spec.name,
        id=info.id,
        replaced=replaced,
        not_retained=info.seam.not_retained if replaced and info.seam is not None else (),
        admission=info.admission,
    )


@_run.register
async def _drop(statement: sql.Drop, parts: Services, who: Principal) -> Dropped:
    name = statement.name
    match statement.kind:
        case ObjectKind.STREAM:
            await streams.remove_stream(name, parts)
        case ObjectKind.TABLE:
            await tables.remove_table(name, parts)
        case ObjectKind.QUERY:
            await queries.remove_query(who, parts.queries.get(name), parts, None)
        case ObjectKind.CLASS:
            await classes.remove_class(name, parts, None)
    return Dropped(kind="dropped", object=statement.kind, name=name)


@_run.register
async def _pause(statement: sql.PauseQuery, parts: Services, who: Principal) -> Changed:
    return await _change(statement.name, DesiredState.PAUSED, parts, who)


@_run.register
async def _resume(statement: sql.ResumeQuery, parts: Services, who: Principal) -> Changed:
    return await _change(statement.name, DesiredState.RUNNING, parts, who)


@_run.register
async def _set_scheduler(statement: sql.SetScheduler, parts: Services, who: Principal) -> Changed:
    chosen = await scheduler.set_scheduler(SchedulerSettings(policy=statement.policy), parts)
    return Changed(kind="changed", object="scheduler", name=chosen.policy, change="in use")


async def _change(name: str, state: DesiredState, parts: Services, who: Principal) -> Changed:
    change = QueryChange(state=state)
    info = await queries.change_query(who, parts.queries.get(name), change, parts, Response(), None)
    return Changed(kind="changed", object="query", name=name, change=info.state)


def _document(plan: Plan) -> dict[str, object]:
    return {"name": "query", "plan": plan.model_dump(mode="json", exclude_unset=True)}
