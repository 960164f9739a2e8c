"""Assembly: creates and connects the services for streams, tables, results and queries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mavstream_protocol.admission import AdmissionPolicy
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.core.clock import Clock
from mavstream_server.core.event_loop.background import Background
from mavstream_server.core.event_loop.work_queue import WorkQueue
from mavstream_server.core.namespace import Namespace
from mavstream_server.core.settings import Settings
from mavstream_server.core.storage.damage import DamageReport
from mavstream_server.ingest.flusher import CreditListener, Timers
from mavstream_server.ingest.stream_store import StreamStore
from mavstream_server.queries.data_files import DataFiles
from mavstream_server.queries.registry import QueryRegistry
from mavstream_server.queries.service import QueryService
from mavstream_server.queries.stream_readers import StreamReaders
from mavstream_server.queries.table_joins import TableJoins
from mavstream_server.results.service import ResultService
from mavstream_server.results.stream_rows import StreamRows
from mavstream_server.supervisor.engine_link import EngineLink
from mavstream_server.tables.store import TableStore


@dataclass(frozen=True, slots=True)
class QueryParts:
    """Services for streams, tables, results and queries of one server."""

    readers: StreamReaders
    streams: StreamStore
    rows: StreamRows
    tables: TableStore
    results: ResultService
    queries: QueryService
    work: WorkQueue
    """Bounds the less important work per turn of the event loop."""
    files: DataFiles
    """Orphan directories and deleted files."""

    def close(self) -> None:
        """Close the files of streams and tables."""
        self.tables.close()
        self.streams.close()


def assemble(
    settings: Settings,
    catalog: Catalog,
    link: EngineLink,
    clock: Clock,
    *,
    timers: Timers,
    background: Background | None = None,
    producers: CreditListener | None = None,
    admission: Callable[[], AdmissionPolicy] | None = None,
    damage: DamageReport | None = None,
) -> QueryParts:
    """Open streams and tables and connect them with the queries; nothing runs before the link is started.

    `admission` returns the admission policy in force; by default that of the settings.
    """
    damage = damage or DamageReport()
    names = Namespace()
    registry = QueryRegistry(names)
    readers = StreamReaders(link)
    streams = StreamStore(
        settings,
        catalog,
        clock,
        timers=timers,
        background=background,
        ring=link.ring,
        readers=readers,
        importance=registry.importance,
        producers=producers,
        damage=damage,
        names=names,
    )
    try:
        # Versions of tables and starting times are compared with arrival times.
        clock = streams.clock
        tables = TableStore(settings, clock, TableJoins(registry, streams), damage, names)
    except BaseException:
        streams.close()
        raise
    work = WorkQueue(registry.importance, clock, timers)
    results = ResultService(
        settings.results_directory,
        settings.max_subscribers,
        importance=registry.importance,
        work=work,
        damage=damage,
        background=background,
    )
    queries = QueryService(
        settings,
        catalog,
        link,
        registry,
        readers,
        streams,
        tables,
        results,
        admission or (lambda: settings.admission),
        now_us=lambda: clock.now() // 1000,
    )
    rows = StreamRows(streams.readable, work, clock, damage)
    files = DataFiles(settings, catalog, streams, tables, registry)
    return QueryParts(readers, streams, rows, tables, results, queries, work, files)
