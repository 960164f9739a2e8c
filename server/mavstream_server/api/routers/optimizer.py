"""Routes of the run-time optimizer: settings, state and decisions."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from mavstream_protocol.optimizer import OptimizerSettings
from mavstream_protocol.tokens import Role
from mavstream_protocol.wire.optimizer import DecisionInfo, OptimizerInfo
from mavstream_protocol.wire.resources import Page
from mavstream_server.api.auth import require
from mavstream_server.api.paging import PageQuery
from mavstream_server.api.problems import documented
from mavstream_server.api.services import Parts
from mavstream_server.optimizer.views import decisions_page, optimizer_info

router = APIRouter(prefix="/v1/optimizer", tags=["optimizer"])

QueryFilter = Annotated[
    str | None, Query(max_length=128, description="Only decisions for the query with this name or id")
]


@router.get("", dependencies=[Depends(require())], responses=documented())
async def show_optimizer(parts: Parts) -> OptimizerInfo:
    """Get the optimizer's settings, the measures in force and the status of QoS targets."""
    return optimizer_info(parts.optimizer)


@router.put("", dependencies=[Depends(require(Role.ADMIN))], responses=documented(409))
async def set_optimizer(settings: OptimizerSettings, parts: Parts) -> OptimizerInfo:
    """Replace the optimizer's settings, also for later restarts. Omitted settings get their defaults."""
    await parts.optimizer.configure(settings)
    parts.catalog.set_optimizer(settings)
    return optimizer_info(parts.optimizer)


@router.get("/decisions", dependencies=[Depends(require())], responses=documented(400))
async def list_decisions(parts: Parts, page: PageQuery, query: QueryFilter = None) -> Page[DecisionInfo]:
    """List the decisions since the server started, newest first: action, reason, queries and outcome."""
    known = None if query is None else parts.queries.registry.id_of(query)
    return decisions_page(parts.optimizer, page.after, page.limit, known)
