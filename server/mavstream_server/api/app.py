"""The application: its parts, its routes, and how it starts and stops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from importlib import import_module
from importlib.metadata import version

from fastapi import Depends, FastAPI
from starlette.middleware import Middleware

from mavstream_server.api.auth import Auth, KnownTokens
from mavstream_server.api.bodies import check_body
from mavstream_server.api.limits import Connections, Limits
from mavstream_server.api.openapi import DESCRIPTION, TAGS, document
from mavstream_server.api.problems import HANDLERS
from mavstream_server.api.routers import (
    classes,
    health,
    optimizer,
    plan,
    policies,
    queries,
    scheduler,
    stats,
    streams,
    tables,
)
from mavstream_server.api.services import Services
from mavstream_server.api.websockets import feed, results
from mavstream_server.api.websockets import unknown_websocket as nowhere
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.core.clock import SystemClock
from mavstream_server.core.settings import Settings
from mavstream_server.engine.process.messages import Hello
from mavstream_server.ingest.background import InThreads
from mavstream_server.ingest.stream_store import StreamStore
from mavstream_server.optimizer.plan_searcher import PlanSearcher
from mavstream_server.optimizer.service import OptimizerService
from mavstream_server.queries.qos import QosReports
from mavstream_server.queries.service import QueryService
from mavstream_server.supervisor.engine_link import EngineLink, EngineUnavailable
from mavstream_server.supervisor.scheduler_choice import SchedulerChoice, current_scheduler
from mavstream_server.tables.retention import TableRetention
from mavstream_server.tables.store import TableStore

_LOG = logging.getLogger("mavstream.server")

ROUTERS = (
    streams.router,
    tables.router,
    queries.router,
    classes.router,
    policies.router,
    scheduler.router,
    optimizer.router,
    plan.router,
    stats.router,
    health.router,
    feed.router,
    results.router,
    nowhere.router,  # takes every websocket that comes to it
)

HOUSEKEEPING_S = 0.1
_GOODBYE_S = 2.0


def create_app(settings: Settings) -> FastAPI:
    """Build the application; nothing is opened or started before its lifespan begins."""
    connections = Connections(settings.max_connections)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            app.state.services = await _start(settings, connections, stack)
            yield

    app = FastAPI(
        title="MavStream",
        version=version("mavstream"),
        description=DESCRIPTION,
        openapi_tags=TAGS,
        lifespan=lifespan,
        generate_unique_id_function=lambda route: route.name,
        redirect_slashes=False,
        exception_handlers=HANDLERS,
        dependencies=[Depends(check_body)],
        middleware=[
            Middleware(
                Limits,
                max_body_bytes=settings.max_body_bytes,
                max_table_bytes=settings.max_table_bytes,
                connections=connections,
            ),
            Middleware(KnownTokens, settings=settings),
        ],
    )
    for router in ROUTERS:
        app.include_router(router)
    app.openapi = lambda: document(app)  # type: ignore[method-assign]
    return app


async def say_goodbye(app: FastAPI) -> None:
    """Tell every websocket that the server stops; those that do not listen are not waited for."""
    services: Services | None = getattr(app.state, "services", None)
    if services is not None and services.sockets:
        leaving = [asyncio.create_task(socket.leave()) for socket in services.sockets]
        await asyncio.wait(leaving, timeout=_GOODBYE_S)


async def _start(settings: Settings, connections: Connections, stack: AsyncExitStack) -> Services:
    """Open and start the parts; `stack` stops and closes them in reverse order."""
    loop = asyncio.get_running_loop()
    sync = settings.delivery == "sync"
    catalog = Catalog(
        settings.catalog_file, sync="FULL" if sync else "NORMAL", max_producers=settings.max_producers
    )
    stack.callback(catalog.close)
    background = InThreads(loop) if sync else None
    if background is not None:
        stack.callback(background.close)
    store = StreamStore(
        settings, catalog, SystemClock(), soon=loop.call_soon, later=loop.call_later, background=background
    )
    stack.callback(store.close)
    stored = TableStore(settings, SystemClock())
    stack.callback(stored.close)
    link = _link(settings, catalog)
    service = QueryService(settings, catalog, store, link, tables=stored)
    choice = SchedulerChoice(catalog, settings, link)
    optimizing = OptimizerService(
        link, choice, service, SystemClock(), catalog.optimizer(), PlanSearcher(service.views.searched)
    )
    service.admission.policy = lambda: optimizing.settings.admission or settings.admission
    services = Services(
        settings,
        catalog,
        store,
        stored,
        link,
        service,
        service.results,
        choice,
        optimizing,
        QosReports(optimizing),
        Auth(settings),
        connections,
    )
    store.on_news(link.ring)
    store.on_need(service.needed_position, service.held_by)
    store.on_credit(services.feeds.credit_returned)
    stack.push_async_callback(link.stop)
    # The first frame would load this, in 0.4 s; while the engine starts, it costs nothing.
    loading = asyncio.create_task(asyncio.to_thread(import_module, "pyarrow.compute"))
    await link.start()
    await loading
    for record in catalog.classes():
        await link.set_priority(record.spec.name, record.spec.priority)
    stack.push_async_callback(service.stop)
    await service.start()
    stack.push_async_callback(optimizing.stop)
    keeper = TableRetention(settings.streams_directory, stored, store, link, SystemClock())
    for task in (_keep_house(services, keeper), service.load.run(), optimizing.run()):
        stack.push_async_callback(_end, asyncio.create_task(task))
    return services


def _link(settings: Settings, catalog: Catalog) -> EngineLink:
    return EngineLink(
        Hello(
            data=settings.data,
            scheduler=current_scheduler(catalog, settings),
            sharing=settings.sharing,
            result_bytes=settings.result_bytes,
            result_time_ns=settings.result_time * 1000,
        ),
        hang_timeout=settings.engine_timeout / 1e6,
    )


async def _keep_house(services: Services, tables: TableRetention) -> None:
    """Do what is due every 100 ms, whatever goes wrong in a round."""
    while True:
        await asyncio.sleep(HOUSEKEEPING_S)
        try:
            services.streams.housekeeping()
            await _tell_priorities(services)
            await tables.run()
        except Exception:
            _LOG.exception("housekeeping failed")


async def _tell_priorities(services: Services) -> None:
    """Tell an engine that is back the priorities that were changed while it was away."""
    while services.untold and services.link.ready:
        name = services.untold.pop()
        try:
            await services.link.set_priority(name, services.catalog.class_(name).spec.priority)
        except EngineUnavailable:
            services.untold.add(name)
            return


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))
