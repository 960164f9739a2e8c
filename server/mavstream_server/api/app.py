"""The FastAPI application: routes, middleware, startup and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack
from importlib.metadata import version

from fastapi import Depends, FastAPI
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route

from mavstream_protocol.errors import MavstreamError
from mavstream_protocol.wire.feed import CloseCode
from mavstream_server.api.access.audit import Audit, AuditLog
from mavstream_server.api.access.cross_site import CrossSiteGuard
from mavstream_server.api.access.quotas import TokenUsage
from mavstream_server.api.auth import Auth, KnownTokens
from mavstream_server.api.bodies import check_body
from mavstream_server.api.limits import Connections, Limits
from mavstream_server.api.openapi import DESCRIPTION, TAGS, document, show_document
from mavstream_server.api.page import add_page
from mavstream_server.api.problems import HANDLERS
from mavstream_server.api.routers import (
    classes,
    health,
    optimizer,
    plan,
    policies,
    producers,
    queries,
    runs,
    scheduler,
    sql,
    stages,
    stats,
    stream_rows,
    streams,
    tables,
)
from mavstream_server.api.services import Leaving, Services
from mavstream_server.api.startup import start_services
from mavstream_server.api.websockets import feed, results, unknown_websocket
from mavstream_server.core.settings import Settings
from mavstream_server.supervisor.engine_child import EngineChild

_LOG = logging.getLogger("mavstream.server")

ROUTERS = (
    streams.router,
    stream_rows.router,
    stages.router,
    producers.router,
    tables.router,
    queries.router,
    runs.router,
    sql.router,
    classes.router,
    policies.router,
    scheduler.router,
    optimizer.router,
    plan.router,
    stats.router,
    health.router,
    feed.router,
    results.router,
    unknown_websocket.router,  # matches every path, so it must be last
)

_GOODBYE_S = 2.0


def create_app(settings: Settings, child: EngineChild | None = None) -> FastAPI:
    """Create the application; nothing is opened or started before its lifespan begins.

    `child` is the engine's process, if it was started already.
    """
    auth = Auth(settings)
    usage, audit = TokenUsage(), AuditLog(settings.audit_file)
    connections = Connections(settings.max_connections, settings.reserved_connections)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.callback(audit.close)
            app.state.services = await start_services(settings, auth, usage, audit, connections, stack, child)
            yield

    app = FastAPI(
        title="MavStream",
        version=version("mavstream"),
        description=DESCRIPTION,
        openapi_tags=TAGS,
        lifespan=lifespan,
        generate_unique_id_function=lambda route: route.name,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        exception_handlers=HANDLERS,
        dependencies=[Depends(check_body)],
        middleware=[
            Middleware(Limits, settings=settings, auth=auth, connections=connections),
            Middleware(Audit, log=audit),
            Middleware(CrossSiteGuard, settings=settings),
            *_cors(settings),
            Middleware(KnownTokens, auth=auth, usage=usage),
        ],
    )
    add_page(app, settings)
    for router in ROUTERS:
        app.include_router(router)
    app.openapi = lambda: document(app)  # type: ignore[method-assign]
    # In front of FastAPI's own route, which would generate the document on the event loop.
    app.router.routes.insert(0, Route("/openapi.json", show_document, include_in_schema=False))
    return app


def _cors(settings: Settings) -> list[Middleware]:
    """Return the middleware that lets pages of allowed origins read answers; none unless some are allowed."""
    if not settings.allow_origin:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=settings.allow_origin,
            allow_methods=("GET", "POST", "PUT", "PATCH", "DELETE"),
            allow_headers=(
                "authorization",
                "content-type",
                "idempotency-key",
                "if-match",
                "producer",
                "sequence",
            ),
            expose_headers=(
                "etag",
                "location",
                "mavstream-complete",
                "mavstream-end",
                "mavstream-epoch",
                "mavstream-gap",
                "mavstream-gap-reason",
                "mavstream-next",
                "mavstream-revision",
                "mavstream-watermark",
                "retry-after",
            ),
        )
    ]


async def say_goodbye(app: FastAPI) -> None:
    """Close every websocket because the server stops; those that do not respond are not waited for."""
    services: Services | None = getattr(app.state, "services", None)
    if services is not None:
        await _close_all(services.sockets, CloseCode.GOING_AWAY, "the server stops: connect again later")


async def reload_tokens(app: FastAPI) -> None:
    """Read the file of tokens again, and close the websockets of tokens that are gone or changed."""
    services: Services | None = getattr(app.state, "services", None)
    if services is None:
        return
    try:
        services.auth.reload()
    except MavstreamError as error:
        _LOG.error("tokens not reloaded, those before stay", extra={"reason": str(error)})
        return
    _LOG.info("tokens reloaded")
    revoked = [socket for socket in services.sockets if not services.auth.knows(socket.principal)]
    await _close_all(revoked, CloseCode.NOT_AUTHORISED, "the token was changed or is no longer valid")


async def _close_all(sockets: Collection[Leaving], code: CloseCode, reason: str) -> None:
    if sockets:
        leaving = [asyncio.create_task(socket.leave(code, reason)) for socket in sockets]
        await asyncio.wait(leaving, timeout=_GOODBYE_S)
