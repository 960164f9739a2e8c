"""The route that reads the rows of a stream."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from mavstream_protocol.streams import DerivedStreamSpec
from mavstream_protocol.tokens import Role
from mavstream_protocol.wire.resources import StreamRows
from mavstream_server.api.auth import require
from mavstream_server.api.bodies import ARROW, JSON
from mavstream_server.api.encodings import NOT_ACCEPTABLE, prefers
from mavstream_server.api.problems import documented
from mavstream_server.api.routers.streams import StreamName
from mavstream_server.api.services import Parts, Services
from mavstream_server.core.errors import Conflict
from mavstream_server.core.principal import Principal
from mavstream_server.results.encoding import ResultFormat
from mavstream_server.results.stream_rows import DEFAULT_ROWS, MOST_ROWS, RowPage

router = APIRouter(prefix="/v1/streams", tags=["streams"])

Reader = Annotated[Principal, Depends(require(Role.CLIENT, Role.RUNNER))]

WithMetadata = Annotated[
    bool,
    Query(description="Whether rows have `_position`, `_time`, `_arrival` and `_watermark` as columns"),
]

_LAST_POSITION = (1 << 63) - 1
_READ: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Consecutive rows. As Arrow the rows are an IPC stream, and the headers "
        "`Mavstream-Next`, `Mavstream-End`, `Mavstream-Watermark`, `Mavstream-Complete`, `Mavstream-Gap` "
        "(`START-STOP`) and `Mavstream-Gap-Reason` carry the rest",
        "content": {ARROW: {"schema": {"type": "string", "format": "binary"}}},
    },
    406: NOT_ACCEPTABLE,
}


@router.get("/{name}/tuples", responses={**documented(404, 409), **_READ}, response_model=StreamRows)
async def read_tuples(
    who: Reader,
    name: StreamName,
    request: Request,
    parts: Parts,
    after: Annotated[
        int | None,
        Query(
            ge=-1, lt=_LAST_POSITION, description="Position of the last row received; omit it for all rows"
        ),
    ] = None,
    limit: Annotated[int, Query(ge=0, le=MOST_ROWS, description="Maximum number of rows")] = DEFAULT_ROWS,
    metadata: WithMetadata = False,
) -> Response:
    """Read the retained rows of a stream, in pages of about 8 MiB at most.

    The `Accept` header selects the format: JSON, or an Arrow IPC stream.
    """
    as_arrow = prefers(request, ARROW, JSON)
    _refuse_derived(name, parts)
    who.require_stream(name)
    format_ = ResultFormat.ARROW if as_arrow else ResultFormat.ROWS
    page = await parts.rows.page(name, after, limit, format_, metadata=metadata)
    if as_arrow:
        return Response(page.rows.arrow(), media_type=ARROW, headers=_headers(page))
    return Response(page.json(), media_type=JSON)


def _refuse_derived(name: str, parts: Services) -> None:
    derived = parts.queries.views.derived_streams().get(name)
    if derived is not None and isinstance(derived.spec, DerivedStreamSpec):
        query = derived.spec.derived_from
        raise Conflict(
            f"stream '{name}' is derived: its rows are the results of query '{query}': read these, with "
            f"'mavstream query watch {query}' or GET /v1/queries/{query}/results",
            code="derived_stream",
        )


def _headers(page: RowPage) -> dict[str, str]:
    headers = {
        "mavstream-next": str(page.next),
        "mavstream-end": str(page.end.position),
        "mavstream-complete": str(page.complete).lower(),
    }
    if page.watermark is not None:
        headers["mavstream-watermark"] = page.watermark
    if page.gap is not None:
        headers["mavstream-gap"] = f"{page.gap[0]}-{page.gap[1]}"
        headers["mavstream-gap-reason"] = str(page.gap_reason)
    return headers
