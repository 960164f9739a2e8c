"""Routes of query classes, which set the priority and the latency target of their queries."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Response

from mavstream_protocol.classes import ClassBody, QueryClass
from mavstream_protocol.errors import ProblemItem
from mavstream_protocol.names import Name
from mavstream_protocol.tokens import Role
from mavstream_protocol.wire.resources import Page
from mavstream_server.api.auth import require
from mavstream_server.api.paging import PageQuery, page_of
from mavstream_server.api.problems import documented
from mavstream_server.api.services import Parts
from mavstream_server.api.versions import IfMatch, etag
from mavstream_server.core.errors import Refused
from mavstream_server.supervisor.engine_link import EngineUnavailable

router = APIRouter(prefix="/v1/classes", tags=["classes"])


@router.get("", dependencies=[Depends(require())], responses=documented())
async def list_classes(parts: Parts, page: PageQuery) -> Page[QueryClass]:
    """List the query classes, ordered by name. The class `default` always exists."""
    return page_of([record.spec for record in parts.catalog.classes()], page, key=lambda one: one.name)


@router.get("/{name}", dependencies=[Depends(require())], responses=documented(404))
async def show_class(name: Name, parts: Parts, response: Response) -> QueryClass:
    """Get a query class. The `ETag` header is its version."""
    record = parts.catalog.class_(name)
    response.headers["etag"] = etag(record.version)
    return record.spec


@router.put("/{name}", dependencies=[Depends(require(Role.ADMIN))], responses=documented(409, 412))
async def put_class(
    name: Name, body: ClassBody, parts: Parts, response: Response, expected: IfMatch
) -> QueryClass:
    """Create or replace a query class. It applies from the engine's next scheduling decision.

    The body need not repeat the name. A latency target that is left out is removed.
    """
    if body.name not in (None, name):
        detail = f"the address names class '{name}' and the body '{body.name}': give the same name, or none"
        item = ProblemItem(pointer="name", code="name_mismatch", detail=detail)
        raise Refused(detail, code="name_mismatch", errors=(item,))
    spec = QueryClass.model_construct(**{**dict(body), "name": name})
    version = parts.catalog.put_class(spec, expected)
    response.headers["etag"] = etag(version)
    parts.queries.classes.set_priority(name, spec.priority)
    try:
        await parts.link.set_class(spec)
    except EngineUnavailable:
        # The catalog has it; `_send_classes` sends it to the engine once that is back.
        parts.pending_classes.add(name)
    return spec


@router.delete(
    "/{name}",
    status_code=204,
    dependencies=[Depends(require(Role.ADMIN))],
    responses=documented(404, 409, 412),
)
async def remove_class(name: Name, parts: Parts, expected: IfMatch) -> None:
    """Remove a query class. Refused for `default`, and while queries that have not ended are in it."""
    parts.queries.classes.remove(name, expected)
    parts.pending_classes.discard(name)
    parts.link.forget_class(name)
