"""Services of a running server, as used by routes and websockets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Protocol

from fastapi import Depends
from starlette.requests import HTTPConnection

from mavstream_server.ingest.connected_producers import ConnectedProducers
from mavstream_server.ingest.traffic import Traffic

if TYPE_CHECKING:
    from mavstream_protocol.wire.feed import CloseCode
    from mavstream_server.api.access.audit import AuditLog
    from mavstream_server.api.access.quotas import TokenUsage
    from mavstream_server.api.auth import Auth
    from mavstream_server.api.limits import Connections
    from mavstream_server.catalog.catalog import Catalog
    from mavstream_server.core.event_loop.work_queue import WorkQueue
    from mavstream_server.core.principal import Principal
    from mavstream_server.core.settings import Settings
    from mavstream_server.core.storage.damage import DamageReport
    from mavstream_server.ingest.idempotent_appends import IdempotentAppends
    from mavstream_server.ingest.producer_upkeep import ProducerUpkeep
    from mavstream_server.ingest.staging.publishing import Publisher
    from mavstream_server.ingest.staging.stages import StageStore
    from mavstream_server.ingest.stream_store import StreamStore
    from mavstream_server.optimizer.service import OptimizerService
    from mavstream_server.queries.data_files import DataFiles
    from mavstream_server.queries.service import QueryService
    from mavstream_server.queries.views.qos import QosReports
    from mavstream_server.results.service import ResultService
    from mavstream_server.results.stream_rows import StreamRows
    from mavstream_server.supervisor.engine_link import EngineLink
    from mavstream_server.supervisor.scheduler_choice import SchedulerChoice
    from mavstream_server.tables.store import TableStore


class Leaving(Protocol):
    """A websocket that can be closed when the server stops or its token is no longer valid."""

    principal: Principal

    async def leave(self, code: CloseCode, reason: str) -> None:
        """Close the websocket."""


@dataclass(slots=True)
class Services:
    """The services of one server, created at startup and closed in reverse order."""

    settings: Settings
    catalog: Catalog
    streams: StreamStore
    rows: StreamRows
    tables: TableStore
    link: EngineLink
    queries: QueryService
    results: ResultService
    scheduler: SchedulerChoice
    optimizer: OptimizerService
    reports: QosReports
    auth: Auth
    usage: TokenUsage
    audit: AuditLog
    connections: Connections
    producers: ConnectedProducers
    producer_upkeep: ProducerUpkeep
    appends: IdempotentAppends
    stages: StageStore
    publisher: Publisher
    work: WorkQueue
    damage: DamageReport
    """Damage in files that was found so far."""
    files: DataFiles
    traffic: Traffic = field(default_factory=Traffic)
    pending_classes: set[str] = field(default_factory=set)
    """Classes whose last change has not been sent to the engine yet."""
    sockets: set[Leaving] = field(default_factory=set)
    """Open websockets of producers and subscribers."""
    pending_feeds: set[Leaving] = field(default_factory=set)
    """Open websockets of producers that have not sent their hello."""


def services_of(connection: HTTPConnection) -> Services:
    """Return the services of the server that handles a request or websocket."""
    services: Services = connection.app.state.services
    return services


Parts = Annotated[Services, Depends(services_of)]
