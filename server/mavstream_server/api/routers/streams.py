"""Routes of streams: registration, feeding by request, completion and removal."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Request, Response
from pydantic import ConfigDict

from mavstream_protocol.described import Described
from mavstream_protocol.names import Name
from mavstream_protocol.streams import DerivedStreamSpec, StreamSpec
from mavstream_protocol.tokens import Role
from mavstream_protocol.tuples import decode_columns
from mavstream_protocol.wire.resources import Page, StreamInfo
from mavstream_protocol.wire.stream_change import StreamChange
from mavstream_server.api.auth import require
from mavstream_server.api.bodies import TUPLE_TYPES, decode_body
from mavstream_server.api.paging import PageQuery, cut
from mavstream_server.api.problems import documented
from mavstream_server.api.services import Parts, Services
from mavstream_server.core.errors import Conflict, Forbidden, Refused
from mavstream_server.core.principal import Principal
from mavstream_server.ingest.append_handle import Accepted, outcome_of
from mavstream_server.supervisor.engine_link import EngineRefused

router = APIRouter(prefix="/v1/streams", tags=["streams"])

_SCOPE = "/v1/streams"
_READ = [Depends(require())]
Maker = Annotated[Principal, Depends(require(Role.CLIENT, Role.FEEDER))]
Feeder = Annotated[Principal, Depends(require(Role.FEEDER))]
_REMOVE = [Depends(require(Role.ADMIN))]

StreamName = Annotated[Name, Path(description="Name of the stream")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="Repeating the request with the same key returns the same response instead of a conflict",
    ),
]
AppendKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="Repeating the request with the same key within 24 h appends nothing and returns the "
        "same response; with another body it is a conflict",
    ),
]
ProducerName = Annotated[
    Name | None, Header(alias="Producer", description="With `Sequence`: appends each frame once and in order")
]
Sequence = Annotated[
    int | None,
    Header(
        alias="Sequence",
        ge=1,
        le=(1 << 63) - 1,
        description="Number of the frame: 1, 2, 3, ... per producer and stream",
    ),
]


class TuplesTaken(Described):
    """Result of appending rows to a stream."""

    model_config = ConfigDict(frozen=True)
    accepted: int
    """Rows appended to the log; 0 if this sequence number was appended before."""
    position: int | None
    """Position of the first of these rows."""
    sequence: int | None
    """The producer's last sequence number in the log."""


@router.post("", status_code=201, responses=documented(409, 429, 507))
async def create_stream(
    spec: StreamSpec, parts: Parts, who: Maker, response: Response, key: IdempotencyKey = None
) -> StreamInfo:
    """Register a stream. The `Location` header is its URL."""
    who.require_stream(spec.name)
    response.headers["location"] = f"{_SCOPE}/{spec.name}"
    if key is None:
        return parts.streams.create(spec, owner=who.name)
    scope, fingerprint = who.scope(_SCOPE), hashlib.sha256(spec.model_dump_json().encode()).hexdigest()
    known = parts.catalog.idempotent(key, scope, fingerprint)
    if known is None:

        def remember() -> None:
            parts.catalog.remember(key, scope, fingerprint, spec.name)

        return parts.streams.create(spec, remember, who.name)
    if known not in parts.streams:
        raise Conflict(
            f"idempotency key '{key}' registered stream '{known}', which was removed since: use a new key",
            code="idempotency_key_reused",
        )
    return parts.streams.info(known)


@router.get("", dependencies=_READ, responses=documented())
async def list_streams(parts: Parts, page: PageQuery) -> Page[StreamInfo]:
    """List the streams, derived ones included, ordered by name."""
    derived = parts.queries.views.derived_streams()
    every = sorted({*parts.streams.names, *derived})
    names = [name for name in every if page.after is None or name > page.after][: page.limit + 1]
    found = [derived[name] if name in derived else parts.streams.info(name) for name in names]
    return cut(found, page, key=lambda one: one.name)


@router.get("/{name}", dependencies=_READ, responses=documented(404))
async def show_stream(name: StreamName, parts: Parts) -> StreamInfo:
    """Get a stream: its specification, positions and producers; of a derived one also its query."""
    derived = parts.queries.views.derived_streams().get(name)
    return parts.streams.info(name) if derived is None else derived


@router.patch("/{name}", responses=documented(404, 409, 507))
async def change_stream(name: StreamName, change: StreamChange, parts: Parts, who: Maker) -> StreamInfo:
    """Add nullable fields to a stream, or change its limits, while its producers and queries go on.

    Fields are null in all rows so far, and in rows of producers that do not send them. Queries that are
    registered go on with the columns that they have, new ones see all. Repeating a change is no error:
    `changed` is empty then. Only for the stream's owner and administrators; for every feeder if it has none.
    """
    derived = parts.queries.views.derived_streams().get(name)
    if derived is not None and isinstance(derived.spec, DerivedStreamSpec):
        raise Conflict(
            f"stream '{name}' is derived: its fields are the columns of query '{derived.spec.derived_from}', "
            "and it has no limits; register another query with the columns that you want",
            code="derived_stream",
        )
    _require_maker(name, parts, who, "changing")
    return parts.streams.change(name, change)


def _require_maker(name: str, parts: Services, who: Principal, doing: str) -> None:
    """Raise Forbidden for a stream of somebody else, and for clients if it belongs to all."""
    owner = parts.streams.owner(name)
    who.require_owner(f"stream '{name}'", owner)
    who.require_stream(name)
    if owner is None and who.role is Role.CLIENT:
        raise Forbidden(f"stream '{name}' has no owner: {doing} it needs a token of role feeder or admin")


@router.delete("/{name}", status_code=204, dependencies=_REMOVE, responses=documented(404, 409))
async def remove_stream(name: StreamName, parts: Parts) -> None:
    """Remove a stream and its rows; of a derived stream also its query. Refused while queries read it."""
    derived = parts.queries.views.derived_streams().get(name)
    if derived is not None and isinstance(derived.spec, DerivedStreamSpec):
        await parts.queries.remove(derived.spec.derived_from)
        return
    users = parts.queries.users(name)
    if not users and name in parts.streams:
        await _detach(name, parts)
        users = parts.queries.users(name)  # a query may have been registered meanwhile
    parts.streams.remove(name, users)
    parts.stages.remove_stream(name)


async def _detach(name: str, parts: Services) -> None:
    # Refused (503) while the engine is down: the next engine would look for the stream's files.
    try:
        await parts.link.detach_stream(name)
    except EngineRefused as error:
        if error.code == "unknown_object":  # no query ever read it
            return
        raise Conflict(f"stream '{name}' is still read: {error.detail}", code="stream_in_use") from error


@router.post(
    "/{name}/tuples",
    responses=documented(404, 408, 409, 413, 415, 429, 507),
    openapi_extra={"requestBody": {"required": True, "content": TUPLE_TYPES}},
)
async def append_tuples(
    name: StreamName,
    request: Request,
    parts: Parts,
    who: Feeder,
    producer: ProducerName = None,
    sequence: Sequence = None,
    key: AppendKey = None,
) -> TuplesTaken:
    """Append rows, all or none; they are in the log when the request returns. The websocket is faster."""
    if (producer is None) != (sequence is None):
        raise Refused(
            "the headers Producer and Sequence go together: give both, or none", code="producer_and_sequence"
        )
    if key is not None and producer is not None:
        raise Refused(
            "the headers Idempotency-Key and Producer exclude each other: a sequence identifies a frame "
            "already",
            code="key_and_producer",
        )
    parts.streams.spec(name)
    who.require_stream(name)
    if producer is not None:
        parts.catalog.producers.check(producer, who)
        parts.catalog.producers.register(producer, who.name)
        parts.producer_upkeep.touch(producer)
    check_rate(parts, who)
    body = await request.body()
    kind = request.headers.get("content-type", "")
    batch = decode_body(parts.streams.spec(name).schema(), kind, body)
    rows, traffic = batch.num_rows, parts.traffic
    count_received(parts, who, name, rows)
    try:
        if key is not None:
            fingerprint = hashlib.sha256(kind.encode() + b"\n" + body).hexdigest()
            position, new = await parts.appends.append(name, who.scope(key), fingerprint, batch, len(body))
            (traffic.acked if new else traffic.repeated)[name] += rows if new else 1
            return TuplesTaken(accepted=rows, position=position, sequence=None)
        outcome = await parts.streams.enqueuer.ingest(producer, name, sequence or 0, batch, len(body))
    except BaseException:
        traffic.rejected[name] += rows
        raise
    if isinstance(outcome, Accepted):
        traffic.acked[name] += rows
        return TuplesTaken(accepted=rows, position=outcome.position, sequence=sequence)
    traffic.repeated[name] += 1
    return TuplesTaken(accepted=0, position=None, sequence=outcome.last)


async def insert_rows(
    name: str, columns: Mapping[str, list[object]], parts: Services, who: Principal
) -> TuplesTaken:
    """Append rows given as columns, all or none, with the checks of `append_tuples`."""
    schema = parts.streams.spec(name).schema()
    who.require_stream(name)
    check_rate(parts, who)
    batch = decode_columns(schema, columns)
    rows = batch.num_rows
    count_received(parts, who, name, rows)
    try:
        outcome = await parts.streams.enqueuer.ingest(None, name, 0, batch, batch.nbytes)
    except BaseException:
        parts.traffic.rejected[name] += rows
        raise
    parts.traffic.acked[name] += rows
    position = outcome.position if isinstance(outcome, Accepted) else None
    return TuplesTaken(accepted=rows, position=position, sequence=None)


def check_rate(parts: Services, who: Principal) -> None:
    """Raise TooMany if a token has appended more rows per second than it may."""
    rate = parts.usage.rate(who)
    if rate is not None:
        rate.check(who.name)


def count_received(parts: Services, who: Principal, name: str, rows: int) -> None:
    """Count rows in the metrics of a stream, and against the rate of a token."""
    parts.traffic.received[name] += rows
    rate = parts.usage.rate(who)
    if rate is not None:
        rate.take(rows)


@router.post(
    "/{name}/complete",
    responses=documented(404, 409),
    openapi_extra={"requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}}},
)
async def complete_stream(name: StreamName, parts: Parts, who: Maker) -> StreamInfo:
    """Mark a stream as complete: its windows close, and queries that read only complete streams finish.

    Needs no body, but the header `Content-Type: application/json`. Only for the stream's owner and
    administrators; for every feeder if it has no owner.
    """
    _require_maker(name, parts, who, "completing")
    await outcome_of(lambda done: parts.streams.complete(name, done))
    return parts.streams.info(name)
