"""Table joins: which queries join stored tables, by which keys, and up to which arrival time."""

from __future__ import annotations

from mavstream_protocol.typed_plan import TypedPlan
from mavstream_server.ingest.stream_store import StreamStore
from mavstream_server.queries.registry import QueryRegistry
from mavstream_server.tables.store import TableStore


class TableJoins:
    """The joins of registered queries, as the table store needs them."""

    def __init__(self, registry: QueryRegistry, streams: StreamStore) -> None:
        self._registry = registry
        self._streams = streams

    def newest_row(self, table: str) -> int:
        """Return the last arrival time, in ns, of the streams whose rows queries join with a table."""
        origins = {one for query in self._registry.joining(table) for one in query.origins}
        streams = origins.intersection(self._streams.names)
        return max((self._streams.last_arrival(name) for name in streams), default=0)

    def joined_by(self, table: str) -> set[tuple[str, ...]]:
        """Return the key columns by which queries join a table."""
        plans = [query.plan for query in self._registry.joining(table)]
        return {keys for plan in plans if plan for name, keys in plan.table_keys if name == table}


async def index_tables(tables: TableStore, plan: TypedPlan, *, earlier: bool) -> None:
    """Index the tables of a plan before rows are joined with them; `earlier` includes all their versions."""
    for table, keys in plan.table_keys:
        await tables.index(table, keys, earlier)
