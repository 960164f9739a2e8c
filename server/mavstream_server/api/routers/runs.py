"""Routes of runners: what they are to run, what they report, and the results that they publish."""

from __future__ import annotations

import asyncio
from typing import Annotated

import pyarrow as pa
from fastapi import APIRouter, Depends, Request
from pydantic import ValidationError

from mavstream_protocol.model_errors import causes, quoted, sentence
from mavstream_protocol.tokens import Role
from mavstream_protocol.tuples import decode_stream
from mavstream_protocol.wire.runs import BATCH_KEY, ResultBatch, ResultsTaken, RunReport, RunTask
from mavstream_server.api.auth import require
from mavstream_server.api.bodies import ARROW, UnsupportedType, media_type
from mavstream_server.api.problems import documented
from mavstream_server.api.routers.queries import Found
from mavstream_server.api.services import Parts
from mavstream_server.core.errors import Refused
from mavstream_server.core.principal import Principal
from mavstream_server.queries.runs.service import Published

router = APIRouter(prefix="/v1/queries", tags=["queries"])

Runner = Annotated[Principal, Depends(require(Role.RUNNER))]

_BATCH = {
    ARROW: {
        "schema": {
            "type": "string",
            "format": "binary",
            "description": "An Arrow IPC stream with the rows; the metadata of its schema have the batch "
            f"(`ResultBatch`) as JSON under `{BATCH_KEY.decode()}`",
        }
    }
}


@router.put("/{id}/run", responses=documented(404, 409))
async def report_run(who: Runner, query: Found, report: RunReport, parts: Parts) -> RunTask:
    """Report the state of a query that a runner runs; returns what it is to do, and where its streams end.

    Only for queries of another backend than `embedded`.
    """
    query.require_reader(who)
    parts.queries.runs.report(query, report)
    return parts.queries.runs.task(query)


@router.post(
    "/{id}/results",
    responses=documented(404, 408, 409, 413, 415, 507),
    openapi_extra={"requestBody": {"required": True, "content": _BATCH}},
)
async def publish_results(who: Runner, query: Found, request: Request, parts: Parts) -> ResultsTaken:
    """Append a numbered batch to the results of a query that a runner runs: readers see all of it or none.

    A batch that was published before is ignored.
    """
    query.require_reader(who)
    kind = media_type(request.headers.get("content-type", ""))
    if kind != ARROW:
        shown = f"got '{kind[:60]}'" if kind else "got none"
        raise UnsupportedType(f"results are of type {ARROW}, {shown}")
    body = await request.body()
    about = _about(body)
    rows = await asyncio.to_thread(decode_stream, query.schema, body)
    return await parts.queries.runs.publish(query, Published(about, rows))


def _about(body: bytes) -> ResultBatch:
    """Return the batch that a body is; raises Refused."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            given = (reader.schema.metadata or {}).get(BATCH_KEY)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Refused(f"the body is not an Arrow IPC stream: {error}", code="invalid_tuples") from None
    if given is None:
        raise Refused(
            f"the metadata of the schema must have the batch under '{BATCH_KEY.decode()}', got none",
            code="invalid_batch",
        )
    try:
        return ResultBatch.model_validate_json(given)
    except ValidationError as error:
        first = causes(error.errors(include_url=False, include_input=False))[0]
        reason = sentence(first, quoted(first, "it"), shown=False)
        raise Refused(f"the batch is wrong: {reason}", code="invalid_batch") from None
