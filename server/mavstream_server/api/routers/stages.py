"""Routes of stages and batches: rows that are sent in parts, and published at once."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request

from mavstream_protocol.instants import format_instant
from mavstream_protocol.names import Name
from mavstream_protocol.tokens import Role
from mavstream_protocol.wire.resources import Page
from mavstream_protocol.wire.stages import NewBatch, StageInfo
from mavstream_server.api.auth import require
from mavstream_server.api.bodies import TUPLE_TYPES, decode_body
from mavstream_server.api.paging import PageQuery, page_of
from mavstream_server.api.problems import documented
from mavstream_server.api.routers.streams import StreamName, TuplesTaken, check_rate, count_received
from mavstream_server.api.services import Parts, Services
from mavstream_server.core.principal import Principal
from mavstream_server.ingest.append_handle import Accepted
from mavstream_server.ingest.staging.publishing import StagedBatch
from mavstream_server.ingest.staging.stages import StoredStage

router = APIRouter(prefix="/v1/streams/{name}", tags=["streams"])

Feeder = Annotated[Principal, Depends(require(Role.FEEDER))]
StageName = Annotated[Name, Path(description="Name of the stage, which its sender chooses")]


@router.get("/stages", dependencies=[Depends(require())], responses=documented(404))
async def list_stages(name: StreamName, parts: Parts, page: PageQuery) -> Page[StageInfo]:
    """List the stages of a stream, ordered by name."""
    parts.streams.spec(name)
    found = [_info(stage, parts) for stage in parts.stages.of_stream(name)]
    return page_of(found, page, key=lambda one: one.name)


@router.put(
    "/stages/{stage}",
    responses=documented(404, 408, 413, 415, 429, 507),
    openapi_extra={"requestBody": {"required": True, "content": TUPLE_TYPES}},
)
async def put_stage(
    name: StreamName, stage: StageName, request: Request, parts: Parts, who: Feeder
) -> StageInfo:
    """Store rows apart from the stream, until a batch publishes them; replaces a stage of the same name."""
    schema = parts.streams.spec(name).schema()
    who.require_stream(name)
    body, kind = await request.body(), request.headers.get("content-type", "")
    batch = await asyncio.to_thread(decode_body, schema, kind, body)
    return _info(await parts.stages.put(name, stage, batch, who), parts)


@router.delete("/stages/{stage}", status_code=204, responses=documented(404))
async def remove_stage(name: StreamName, stage: StageName, parts: Parts, who: Feeder) -> None:
    """Remove a stage; its rows are not published. Only for its owner and administrators."""
    parts.streams.spec(name)
    parts.stages.remove(parts.stages.find(name, stage, who))


@router.post("/batches", responses=documented(404, 409, 413, 415, 429, 507))
async def publish_batch(name: StreamName, batch: NewBatch, parts: Parts, who: Feeder) -> TuplesTaken:
    """Append the rows of stages to the stream as one batch: readers see all of them or none.

    A `sequence` that is not higher than the producer's last one was published before: it is ignored, and
    `accepted` is 0. The stages are removed either way.
    """
    who.require_stream(name)
    parts.streams.spec(name)
    parts.catalog.producers.check(batch.producer, who)
    check_rate(parts, who)
    parts.catalog.producers.register(batch.producer, who.name)
    parts.producer_upkeep.touch(batch.producer)
    given = StagedBatch(name, batch.producer, batch.sequence, batch.stages, batch.end)
    outcome = await parts.publisher.publish(given, who)
    if not isinstance(outcome, Accepted):
        parts.traffic.repeated[name] += 1
        return TuplesTaken(accepted=0, position=None, sequence=outcome.last)
    count_received(parts, who, name, outcome.rows)
    parts.traffic.acked[name] += outcome.rows
    return TuplesTaken(accepted=outcome.rows, position=outcome.position, sequence=batch.sequence)


def _info(stage: StoredStage, parts: Services) -> StageInfo:
    return StageInfo(
        name=stage.name,
        rows=stage.rows,
        bytes=stage.nbytes,
        owner=stage.owner,
        expires=format_instant(stage.at_us + parts.settings.stage_expiry),
    )
