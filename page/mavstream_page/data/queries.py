"""The list of queries, and everything about one of them."""

from __future__ import annotations

from typing import Any

from mavstream import AsyncClient, MavstreamError
from mavstream_page.data.catalog import catalog_of
from mavstream_page.data.history import History, Rate
from mavstream_page.data.plans import tables_of
from mavstream_page.data.topic import Topic
from mavstream_protocol import QueryClass
from mavstream_protocol.sql import plan_to_sql
from mavstream_protocol.wire.plans import QueryPlan
from mavstream_protocol.wire.qos import QosReport
from mavstream_protocol.wire.resources import PulledResults, QueryInfo, StreamInfo, TableInfo

SHOWN_ROWS = 50
"""The newest result rows that are read."""


class QueriesTopic(Topic):
    """All queries, with their rates of answers."""

    key = "queries"

    def __init__(self) -> None:
        super().__init__()
        self.queries: dict[str, QueryInfo] = {}
        self.classes: list[QueryClass] = []
        self.results: dict[str, Rate] = {}
        self.targets: dict[str, dict[str, int]] = {}
        """Number of targets by class and state."""

    async def poll(self, client: AsyncClient, now: float) -> None:
        """Read the list."""
        self.queries = {each.id: each for each in await client.queries()}
        self.classes = sorted(await client.classes(), key=lambda one: (-one.priority, one.name))
        for id_, info in self.queries.items():
            self.results.setdefault(id_, Rate()).count(now, info.results)
        for gone in set(self.results) - set(self.queries):
            del self.results[gone]


class QueryTopic(Topic):
    """One query: its state, plan, operators, QoS report and newest results."""

    def __init__(self, id_: str) -> None:
        super().__init__()
        self.id = id_
        self.info: QueryInfo | None = None
        self.plan: QueryPlan | None = None
        self.qos: QosReport | None = None
        self.sql = ""
        self.classes: list[QueryClass] = []
        self.pulled: PulledResults | None = None
        self.streams: dict[str, StreamInfo] = {}
        """The streams that it reads, by name."""
        self.results = Rate()
        self.rows_in = Rate()
        self.latency = {name: History() for name in ("p50", "p95", "p99")}
        self.operators: dict[str, Rate] = {}
        """Rows that each operator takes."""
        self._written: Any = None

    async def poll(self, client: AsyncClient, now: float) -> None:
        """Read all of it."""
        query = client.query(self.id)
        self.info = await query.info()
        self.plan = await query.plan()
        self.qos = await query.qos()
        self.classes = sorted(await client.classes(), key=lambda one: (-one.priority, one.name))
        await self._read_rows(client)
        await self._read_streams(client, self.plan)
        await self._write_sql(client, self.plan)
        self.results.count(now, self.info.results)
        latency = self.qos.latency_ms
        for name, history in self.latency.items():
            history.add(now, None if latency is None else getattr(latency, name))
        taken = 0
        for operator in self.plan.operators:
            self.operators.setdefault(operator.name, Rate()).count(now, operator.tuples)
            taken += operator.tuples if operator.operator == "source" else 0
        self.rows_in.count(now, taken)

    async def _read_rows(self, client: AsyncClient) -> None:
        assert self.info is not None
        if self.pulled is None or self.pulled.next != self.info.results - 1:
            after = max(-1, self.info.results - 1 - SHOWN_ROWS)
            try:
                self.pulled = await client.query(self.id).pull(after if after >= 0 else None, SHOWN_ROWS)
            except MavstreamError:
                # A token of another role reads the state, but not the rows.
                self.pulled = None

    async def _read_streams(self, client: AsyncClient, plan: QueryPlan) -> None:
        for name in plan.plan.streams:
            self.streams[name] = await client.stream_info(name)

    async def _write_sql(self, client: AsyncClient, plan: QueryPlan) -> None:
        running = plan.running or plan.plan
        if running == self._written:
            return
        self._written = running
        tables: list[TableInfo] = []
        if tables_of(running):
            tables = await client.tables()
        try:
            self.sql = plan_to_sql(running, catalog_of(self.streams.values(), tables))
        except MavstreamError as error:
            self.sql = f"-- This plan cannot be written as SQL: {error}"
