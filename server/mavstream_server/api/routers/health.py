"""Health, server information and Prometheus metrics."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from pydantic import ConfigDict

from mavstream_protocol.described import Described
from mavstream_protocol.wire.resources import ServerInfo
from mavstream_server.api.auth import require
from mavstream_server.api.metrics import render
from mavstream_server.api.problems import documented
from mavstream_server.api.server_metrics import server_metrics
from mavstream_server.api.services import Parts
from mavstream_server.core.errors import NotReady
from mavstream_server.core.principal import Principal

router = APIRouter(tags=["server"])

_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"description": "Metrics", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


class Health(Described):
    """Health status of the server."""

    model_config = ConfigDict(frozen=True)
    status: str


class FileDamage(Described):
    """Damage in a file of the data directory."""

    model_config = ConfigDict(frozen=True)
    file: str
    """The path within the data directory."""
    offset: int
    """The byte offset of the damage."""
    bytes: int
    start: int
    """The position or offset of the first lost row."""
    stop: int
    """The one behind the last lost row."""
    rows: int
    """How many rows are lost."""
    reason: str


class Readiness(Health):
    """Whether queries are computed, and what is wrong with the files."""

    damage: tuple[FileDamage, ...] = ()
    """Damaged files that were found since the server started, at most 100; see `mavstream check`."""
    failures: dict[str, str] = {}
    """Streams that accept no rows because of their files, and other files that are missing, with reasons."""
    orphans: tuple[str, ...] = ()
    """Directories in the data directory that belong to no stream, table or query."""


@router.get("/livez")
async def live() -> Health:
    """Liveness probe: the process responds. Restart the server if this request fails."""
    return Health(status="live")


@router.get("/readyz", responses=documented())
async def ready(parts: Parts) -> Readiness:
    """Readiness probe: 200 while queries are computed, 503 with the reason while the engine is starting.

    Damaged files do not change the status: a restart would not repair them.
    """
    if not parts.link.ready:
        raise NotReady(
            "the engine process is not running and is being started: rows are taken and queries go on soon",
            code="engine_starting",
        )
    data = parts.settings.data
    damage = tuple(
        FileDamage(
            file=_within(data, one.file),
            offset=one.offset,
            bytes=one.nbytes,
            start=one.start,
            stop=one.stop,
            rows=one.rows,
            reason=one.reason,
        )
        for one in parts.damage.found.values()
    )
    return Readiness(
        status="ready", damage=damage, failures=parts.files.failures, orphans=parts.files.orphans
    )


def _within(data: Path, file: Path) -> str:
    return str(file.relative_to(data) if file.is_relative_to(data) else file)


@router.get("/v1/info", responses=documented())
async def info(parts: Parts, who: Annotated[Principal, Depends(require())]) -> ServerInfo:
    """Get the server's version, delivery guarantee and limits, and the role of the token."""
    settings = parts.settings
    return ServerInfo(
        name="mavstream",
        version=version("mavstream"),
        delivery=settings.delivery,
        limits=settings.limits,
        engines=1,
        role=who.role,
    )


@router.get("/metrics", dependencies=[Depends(require())], responses={**documented(), **_TEXT})
async def metrics(parts: Parts) -> Response:
    """Get the metrics in the Prometheus text format."""
    return Response(
        render(await server_metrics(parts)), media_type="text/plain; version=0.0.4; charset=utf-8"
    )
