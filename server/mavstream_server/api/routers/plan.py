"""Route of the global plan: the operators of all running queries."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from mavstream_protocol.wire.plans import GlobalPlan
from mavstream_server.api.auth import require
from mavstream_server.api.paging import PageQuery
from mavstream_server.api.problems import documented
from mavstream_server.api.services import Parts

router = APIRouter(prefix="/v1/plan", tags=["queries"], dependencies=[Depends(require())])


@router.get("", responses=documented())
async def show_global_plan(parts: Parts, page: PageQuery) -> GlobalPlan:
    """Get the operators of all running and paused queries, with the edges between them and their metrics."""
    return await parts.queries.views.global_plan(page.after, page.limit)
