"""Health, server information and Prometheus metrics."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, ConfigDict

from mavstream_protocol.wire.resources import ServerInfo
from mavstream_server.api.auth import require
from mavstream_server.api.metrics import render
from mavstream_server.api.problems import documented
from mavstream_server.api.server_metrics import server_metrics
from mavstream_server.api.services import Parts
from mavstream_server.core.errors import NotReady

router = APIRouter(tags=["server"])

_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"description": "Metrics", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


class Health(BaseModel):
    """Health status of the server."""

    model_config = ConfigDict(frozen=True)
    status: str


@router.get("/livez")
async def live() -> Health:
    """Liveness probe: the process responds. Restart the server if this request fails."""
    return Health(status="live")


@router.get("/readyz", responses=documented())
async def ready(parts: Parts) -> Health:
    """Readiness probe: 200 while queries are computed, 503 with the reason while the engine is starting."""
    if not parts.link.ready:
        raise NotReady(
            "the engine process is not running and is being started: rows are taken and queries go on soon",
            code="engine_starting",
        )
    return Health(status="ready")


@router.get("/v1/info", dependencies=[Depends(require())], responses=documented())
async def info(parts: Parts) -> ServerInfo:
    """Get the server's version, delivery guarantee and limits."""
    settings = parts.settings
    return ServerInfo(
        name="mavstream",
        version=version("mavstream"),
        delivery=settings.delivery,
        limits=settings.limits,
        engines=1,
    )


@router.get("/metrics", dependencies=[Depends(require())], responses={**documented(), **_TEXT})
async def metrics(parts: Parts) -> Response:
    """Get the metrics in the Prometheus text format."""
    return Response(
        render(await server_metrics(parts)), media_type="text/plain; version=0.0.4; charset=utf-8"
    )
