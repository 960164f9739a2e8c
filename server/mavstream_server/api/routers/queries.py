"""Routes of queries: registration, changes and removal; plans, results and QoS."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import WrapValidator

from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.queries import QueryBackend, QuerySpec, SqlQuerySpec
from mavstream_protocol.wire.plans import QueryPlan, QuerySql
from mavstream_protocol.wire.qos import QosReport
from mavstream_protocol.wire.resources import (
    ActualState,
    Page,
    PulledResults,
    QueryChange,
    QueryInfo,
    Validation,
)
from mavstream_protocol.wire.results import OnLag
from mavstream_protocol.wire.trials import TrialResult, TrialSpec
from mavstream_server.api.access.audit import OBJECT
from mavstream_server.api.auth import require
from mavstream_server.api.bodies import ARROW, JSON, QueryRoute
from mavstream_server.api.encodings import NOT_ACCEPTABLE, preferred, prefers
from mavstream_server.api.paging import PageQuery
from mavstream_server.api.problems import documented
from mavstream_server.api.routers.stream_rows import WithMetadata
from mavstream_server.api.services import Parts, Services
from mavstream_server.api.streaming.results import EVENTS, FORMATS, ResultStream
from mavstream_server.api.versions import IfMatch, etag
from mavstream_server.core.principal import Principal
from mavstream_server.queries.query import Query as RegisteredQuery
from mavstream_server.queries.views.plans import query_sql
from mavstream_server.results.service import DEFAULT_PULL, MOST_PULLED
from mavstream_server.results.subscription import LATEST, Subscription

router = APIRouter(prefix="/v1/queries", tags=["queries"], route_class=QueryRoute)

TEXT = "text/plain"
PlanFormat = Literal["plan", "sql"]
_LAST_OFFSET = (1 << 63) - 1

_READ = [Depends(require())]
Client = Annotated[Principal, Depends(require("client"))]

QueryRef = Annotated[
    str,
    Path(alias="id", max_length=128, description="Name of the query, or the id that it got"),
]


async def _found(ref: QueryRef, parts: Parts, request: Request) -> RegisteredQuery:
    """Return the query of a request; the audit log records its id beside the name."""
    found = parts.queries.get(ref)
    request.scope[OBJECT] = f"{router.prefix}/{found.id}"
    return found


Found = Annotated[RegisteredQuery, Depends(_found)]


def _unvalidated(value: Any, _: object) -> Any:
    """Return a body unvalidated: the service reports all its errors at once; the model only documents it."""
    return value


SpecBody = Annotated[QuerySpec | SqlQuerySpec, WrapValidator(_unvalidated)]
SpecOrPlanBody = Annotated[QuerySpec | SqlQuerySpec | Plan, WrapValidator(_unvalidated)]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="Repeating the request with the same key returns the same query instead of a new one",
    ),
]


_PLANS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The plan. With `?format=sql` and `Accept: text/plain` the SQL alone, as a script",
        "content": {TEXT: {"schema": {"type": "string"}}},
    },
    406: NOT_ACCEPTABLE,
}


@router.post("", status_code=201, responses=documented(409, 429))
async def register_query(
    spec: SpecBody, parts: Parts, who: Client, response: Response, key: IdempotencyKey = None
) -> QueryInfo:
    """Register a query, with its plan or as SQL, and start it. The `Location` header is its URL."""
    info = await parts.queries.register(spec, key, who)
    response.headers["location"] = f"{router.prefix}/{info.id}"
    _tag(parts, info, response)
    return info


@router.post("/try", responses=documented(422, 429), response_model=TrialResult)
async def try_query(trial: TrialSpec, parts: Parts, who: Client) -> Response:
    """Run a plan or SQL on the last rows of its streams and return its first answers; nothing is registered.

    A trial runs in a process of its own, bounded in time, memory and rows, and reads the streams as they are.
    """
    return Response(await parts.queries.trials.run(trial, who), media_type=JSON)


@router.post("/validate", dependencies=_READ, responses=documented(429), response_model=Validation)
async def validate_query(body: SpecOrPlanBody, parts: Parts) -> Response:
    """Validate a query or a plan without starting it. Returns schemas by node and paths, or every error.

    SQL needs no name here; its plan is returned.
    """
    return Response((await parts.queries.validate(body)).json(), media_type=JSON)


@router.get("", dependencies=_READ, responses=documented())
async def list_queries(
    parts: Parts,
    page: PageQuery,
    class_: Annotated[str | None, Query(alias="class", description="Only queries of this class")] = None,
    state: Annotated[ActualState | None, Query(description="Only queries in this state")] = None,
    backend: Annotated[QueryBackend | None, Query(description="Only queries of this backend")] = None,
) -> Page[QueryInfo]:
    """List the queries, ordered by id, ended ones included."""
    return await parts.queries.views.page(page.after, page.limit, class_, state, backend)


@router.get("/{id}", dependencies=_READ, responses=documented(404))
async def show_query(query: Found, parts: Parts, response: Response) -> QueryInfo:
    """Get a query: its specification, desired and actual state, and metrics."""
    info = await parts.queries.views.info(query.id)
    _tag(parts, info, response)
    return info


@router.put(
    "/{id}",
    responses={
        **documented(400, 404, 409, 412, 429),
        201: {"description": "The query is new", "model": QueryInfo},
    },
)
async def put_query(
    who: Client, ref: QueryRef, spec: SpecBody, parts: Parts, response: Response, version: IfMatch
) -> QueryInfo:
    """Register a query under a name, or change the one that has it to another specification while it runs.

    Another plan has the same sources, tables and result columns. Operators that are the same in both plans
    keep their state, the others begin with the next rows; offsets go on. Only for its owner and admins.
    """
    info, created = await parts.queries.put(ref, spec, version, who)
    response.status_code = 201 if created else 200
    response.headers["location"] = f"{router.prefix}/{info.id}"
    _tag(parts, info, response)
    return info


@router.patch("/{id}", responses=documented(404, 409, 412))
async def change_query(
    who: Client,
    query: Found,
    change: QueryChange,
    parts: Parts,
    response: Response,
    version: IfMatch,
) -> QueryInfo:
    """Pause, resume or stop a query, or change its class, QoS targets, start time or stop time.

    Only for its owner and administrators.
    """
    who.require_owner(f"query '{query.id}'", query.owner)
    if change.class_ is not None:
        who.require_class(change.class_)
    info = await parts.queries.change(query.id, change, version)
    _tag(parts, info, response)
    return info


@router.delete("/{id}", status_code=204, responses=documented(404, 412))
async def remove_query(who: Client, query: Found, parts: Parts, version: IfMatch) -> None:
    """Stop a query and remove it together with its results. Only for its owner and administrators."""
    who.require_owner(f"query '{query.id}'", query.owner)
    await parts.queries.remove(query.id, version)


@router.get(
    "/{id}/plan",
    dependencies=_READ,
    responses={**documented(404, 406, 409, 429), **_PLANS},
    response_model=QueryPlan | QuerySql,
)
async def show_plan(
    query: Found,
    request: Request,
    parts: Parts,
    format: Annotated[PlanFormat, Query(description="The plan with its operators, or as SQL")] = "plan",  # noqa: A002
) -> QueryPlan | QuerySql | Response:
    """Get a query's plan: schemas, paths, segments and the metrics of its operators; or the plan as SQL."""
    if format == "plan":
        return await parts.queries.views.plan(query.id)
    text = prefers(request, TEXT, JSON)
    found = await query_sql(await parts.queries.views.plan(query.id), parts.queries.planner.sql_of)
    if not text:
        return found
    running = "" if found.running is None else f";\n\n-- running instead:\n{found.running}"
    return PlainTextResponse(f"{found.sql}{running};\n")


@router.get("/{id}/qos", dependencies=_READ, responses=documented(404))
async def show_qos(query: Found, parts: Parts) -> QosReport:
    """Get a query's QoS report: targets, measured values, target status and the optimizer's actions."""
    return parts.reports.report(query, (await parts.queries.metrics.of((query.id,))).get(query.id))


LastEventId = Annotated[
    int | None,
    Header(
        alias="Last-Event-ID",
        ge=-1,
        le=_LAST_OFFSET,
        description="The offset of the last row received, which browsers send when they connect again",
    ),
]


def _streamed(
    parts: Services,
    who: Principal,
    query: RegisteredQuery,
    media_type: str,
    after: int | str | None,
    on_lag: OnLag | None,
    *,
    follow: bool,
) -> Response:
    """Return the response with rows as they are answered; raises TooManySubscribers, OffsetAhead."""
    told = media_type == EVENTS or on_lag is OnLag.GAP
    subscription = Subscription(
        parts.results,
        parts.results.of(query),
        after,
        FORMATS[media_type],
        OnLag.GAP if told else OnLag.DISCONNECT,
    )
    return ResultStream(parts, who, subscription, media_type, gaps=told, follow=follow)


_PULLED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Rows of one epoch. As Arrow the rows are an IPC stream, and the headers "
        "`Mavstream-Next`, `Mavstream-Epoch`, `Mavstream-Revision`, `Mavstream-End`, `Mavstream-Complete`, "
        "`Mavstream-Gap` (`START-STOP`) and `Mavstream-Gap-Reason` carry the rest",
        "content": {
            ARROW: {"schema": {"type": "string", "format": "binary"}},
            **{kind: {"schema": {"type": "string"}} for kind in FORMATS},
        },
    },
    406: NOT_ACCEPTABLE,
}


@router.get(
    "/{id}/results",
    responses={**documented(404, 429), **_PULLED},
    response_model=PulledResults,
)
async def pull_results(
    who: Client,
    query: Found,
    request: Request,
    parts: Parts,
    after: Annotated[
        int | None,
        Query(ge=-1, le=_LAST_OFFSET, description="Offset of the last row received; omit it for all rows"),
    ] = None,
    last_event_id: LastEventId = None,
    latest: Annotated[bool, Query(description="Streams: begin with the next new row")] = False,
    follow: Annotated[bool, Query(description="Streams: whether to wait for further rows")] = True,
    on_lag: Annotated[
        OnLag | None,
        Query(description="JSON lines, CSV: with `gap` they go on where rows are missing"),
    ] = None,
    limit: Annotated[int, Query(ge=0, le=MOST_PULLED, description="Maximum number of rows")] = DEFAULT_PULL,
    metadata: WithMetadata = False,
) -> Response:
    """Get results. A websocket at the same path has them pushed (`?after=&format=&on_lag=`).

    The `Accept` header selects the format: a page of JSON or an Arrow IPC stream, or a stream of rows as they
    are answered: server-sent events, JSON lines or CSV. Events have the offset as id, and say of gaps; the
    others have rows alone and break off at a gap. `limit` and `metadata` are for pages.
    """
    if (streamed := preferred(request, tuple(FORMATS))) is not None:
        query.require_reader(who)
        before = after if last_event_id is None else last_event_id
        return _streamed(parts, who, query, streamed, LATEST if latest else before, on_lag, follow=follow)
    as_arrow = prefers(request, ARROW, JSON)
    query.require_reader(who)
    pulled = await parts.results.pull_synced(query, after, limit, metadata=metadata)
    if not as_arrow:
        return Response(pulled.json(), media_type=JSON)
    headers = {"mavstream-next": str(pulled.next), "mavstream-epoch": str(pulled.epoch)}
    headers["mavstream-revision"] = str(pulled.revision)
    headers["mavstream-end"] = str(pulled.end)
    headers["mavstream-complete"] = str(pulled.complete).lower()
    if pulled.gap is not None:
        headers["mavstream-gap"] = f"{pulled.gap[0]}-{pulled.gap[1]}"
        headers["mavstream-gap-reason"] = str(pulled.gap_reason)
    return Response(pulled.arrow(), media_type=ARROW, headers=headers)


def _tag(parts: Services, info: QueryInfo, response: Response) -> None:
    response.headers["etag"] = etag(parts.queries.get(info.id).record.version)
