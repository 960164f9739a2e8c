"""Route of the available scheduling policies."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from mavstream_protocol.wire.resources import Page, PolicyInfo
from mavstream_server.api.auth import require
from mavstream_server.api.paging import PageQuery, page_of
from mavstream_server.api.problems import documented
from mavstream_server.scheduling.listing import describe_all

router = APIRouter(prefix="/v1/policies", tags=["scheduling"], dependencies=[Depends(require())])


@router.get("", responses=documented())
async def list_policies(page: PageQuery) -> Page[PolicyInfo]:
    """List the scheduling policies with their purpose and their options."""
    return page_of(describe_all(), page, key=lambda one: one.name)
