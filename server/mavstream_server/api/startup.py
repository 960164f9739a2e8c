"""Server startup: creates and connects the services, and stops them in reverse order."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack, suppress
from importlib import import_module

from mavstream_protocol.optimizer import OptimizerSettings
from mavstream_server.api.access.audit import AuditLog
from mavstream_server.api.access.quotas import TokenUsage
from mavstream_server.api.auth import Auth
from mavstream_server.api.limits import Connections
from mavstream_server.api.services import Services
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.core.clock import SystemClock
from mavstream_server.core.event_loop.background import InThreads
from mavstream_server.core.event_loop.idle import idle
from mavstream_server.core.heap import QueryHeap
from mavstream_server.core.settings import Settings
from mavstream_server.core.storage.boot import forget_boot, machine_restarted, note_boot
from mavstream_server.core.storage.damage import DamageReport
from mavstream_server.engine.process.messages import Hello
from mavstream_server.ingest.connected_producers import ConnectedProducers
from mavstream_server.ingest.idempotent_appends import IdempotentAppends
from mavstream_server.ingest.producer_upkeep import ProducerUpkeep
from mavstream_server.ingest.staging.publishing import Publisher
from mavstream_server.ingest.staging.stages import StageStore
from mavstream_server.optimizer.config import OptimizerConfig
from mavstream_server.optimizer.plan_searcher import PlanSearcher
from mavstream_server.optimizer.service import OptimizerService
from mavstream_server.queries.assembly import assemble
from mavstream_server.queries.planning.planner import QueryPlanner
from mavstream_server.queries.views.qos import QosReports
from mavstream_server.supervisor.engine_child import EngineChild
from mavstream_server.supervisor.engine_link import EngineLink, EngineUnavailable
from mavstream_server.supervisor.scheduler_choice import SchedulerChoice, current_scheduler
from mavstream_server.tables.directory import table_names
from mavstream_server.tables.retention import TableRetention

_LOG = logging.getLogger("mavstream.server")

MAINTENANCE_S = 0.1
_QUOTAS_S = 1.0
"""Interval between two checks of how much memory the queries of a token hold."""
_WARM_UP_S = 2.0
"""Time from the start of the services to that of the process for large queries, if the server is idle."""


async def start_services(
    settings: Settings,
    auth: Auth,
    usage: TokenUsage,
    audit: AuditLog,
    connections: Connections,
    stack: AsyncExitStack,
    child: EngineChild | None = None,
) -> Services:
    """Open and start the services; `stack` stops and closes them in reverse order.

    `child` is the engine's process, if it was started already.
    """
    loop = asyncio.get_running_loop()
    sync = settings.delivery == "sync"
    catalog = Catalog(
        settings.catalog_file,
        sync="FULL" if sync else "NORMAL",
        max_producers=settings.max_producers,
        tables=table_names(settings.tables_directory),
    )
    stack.callback(catalog.close)
    background = InThreads(loop) if sync else None
    if background is not None:
        stack.callback(background.close)
    damage = DamageReport()
    link = _link(settings, catalog, child, damage)
    producers = ConnectedProducers(catalog.producers)
    config = OptimizerConfig(catalog.optimizer() or OptimizerSettings())
    parts = assemble(
        settings,
        catalog,
        link,
        SystemClock(),
        timers=loop,
        background=background,
        producers=producers,
        admission=lambda: config.settings.admission or settings.admission,
        damage=damage,
    )
    stack.callback(parts.close)
    queries = parts.queries
    choice = SchedulerChoice(catalog, settings, link)
    searcher = PlanSearcher(queries.views.searched)
    optimizer = OptimizerService(link, choice, queries, SystemClock(), config, searcher)
    stages = StageStore(
        settings.stages_directory,
        parts.streams,
        parts.streams.clock,
        settings.max_stage_bytes,
        settings.stage_expiry,
    )
    services = Services(
        settings,
        catalog,
        parts.streams,
        parts.rows,
        parts.tables,
        link,
        queries,
        parts.results,
        choice,
        optimizer,
        QosReports(optimizer),
        auth,
        usage,
        audit,
        connections,
        producers,
        ProducerUpkeep(parts.streams, catalog.producers, producers, SystemClock(), settings.producer_expiry),
        IdempotentAppends(parts.streams, catalog.appends, settings.streams_directory, SystemClock()),
        stages,
        Publisher(parts.streams, stages, settings.max_batch_bytes),
        parts.work,
        damage,
        parts.files,
    )
    stack.push_async_callback(link.stop)
    # Import it while the engine starts: the first frame would need it, and it takes 0.4 s.
    loading = asyncio.create_task(asyncio.to_thread(import_module, "pyarrow.compute"))
    await link.start(queries)
    await link.set_clock(parts.streams.clock.offset)
    await loading
    for record in catalog.classes():
        await link.set_class(record.spec)
    stack.push_async_callback(queries.stop)
    # The disk may have lost results that were delivered, unless they were synced.
    power_lost = not sync and machine_restarted(settings.data)
    if power_lost:
        _LOG.warning("the machine was restarted without an orderly stop: queries continue under new epochs")
    await queries.start(new_epochs=power_lost)
    note_boot(settings.data)
    stack.callback(forget_boot, settings.data)
    stack.push_async_callback(optimizer.stop)
    retention = TableRetention(
        settings.streams_directory,
        settings.results_directory,
        parts.tables,
        parts.streams,
        queries,
        SystemClock(),
    )
    for task in (
        _maintain(services, retention),
        queries.load.run(),
        optimizer.run(),
        _warm_up(queries.planner),
    ):
        stack.push_async_callback(_end, asyncio.create_task(task))
    return services


def _link(
    settings: Settings, catalog: Catalog, child: EngineChild | None, damage: DamageReport
) -> EngineLink:
    return EngineLink(
        Hello(
            data=settings.data,
            scheduler=current_scheduler(catalog, settings),
            sharing=settings.sharing,
            result_bytes=settings.result_bytes,
            result_time_ns=settings.result_time * 1000,
            query_memory=settings.query_memory,
            engine_memory=settings.engine_memory,
            checkpoint_interval_ns=(
                None if settings.checkpoint_interval is None else settings.checkpoint_interval * 1000
            ),
            sync=settings.delivery == "sync",
        ),
        child=child,
        damage=damage,
        hang_timeout=settings.engine_timeout / 1e6,
    )


async def _maintain(services: Services, tables: TableRetention) -> None:
    """Run periodic maintenance every 100 ms; errors of a round are logged."""
    heap, enforced = QueryHeap(), time.monotonic()
    while True:
        await asyncio.sleep(MAINTENANCE_S)
        try:
            heap.tend(len(services.queries.registry), time.monotonic_ns())
            services.streams.maintain()
            services.files.check(time.monotonic_ns())
            services.producer_upkeep.run()
            services.appends.expire()
            services.stages.expire()
            services.rows.expire()
            await _send_classes(services)
            await _send_clock(services)
            await tables.run()
            if time.monotonic() - enforced >= _QUOTAS_S:
                await services.queries.quotas.enforce(services.auth.principals)
                enforced = time.monotonic()
        except Exception:
            _LOG.exception("maintenance failed")


async def _warm_up(planner: QueryPlanner) -> None:
    """Start the process that plans large queries, once the server is ready and has nothing else to do."""
    await idle(_WARM_UP_S)
    await planner.warm_up()


async def _send_classes(services: Services) -> None:
    """Send classes that changed while the engine was down to the new engine."""
    while services.pending_classes and services.link.ready:
        name = services.pending_classes.pop()
        try:
            await services.link.set_class(services.catalog.class_(name).spec)
        except EngineUnavailable:
            services.pending_classes.add(name)
            return


async def _send_clock(services: Services) -> None:
    """Let the engine's clock follow that of arrival times."""
    if services.link.ready:
        with suppress(EngineUnavailable):
            await services.link.set_clock(services.streams.clock.offset)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))
