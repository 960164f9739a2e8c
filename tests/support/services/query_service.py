"""Query services for tests: real catalog, real stream logs, a real engine process; no HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.servers.running_server import PATIENCE, until

from mavstream_protocol import StreamSpec
from mavstream_protocol.admission import AdmissionPolicy
from mavstream_protocol.tuples import decode_rows
from mavstream_protocol.wire.resources import QueryInfo
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.core.clock import Clock, SystemClock
from mavstream_server.core.settings import Settings
from mavstream_server.engine.process.messages import Hello
from mavstream_server.queries.assembly import assemble
from mavstream_server.results.subscription import Subscription
from mavstream_server.supervisor.engine_link import EngineLink

READINGS = {
    "name": "readings",
    "fields": [
        {"name": "at", "type": "timestamp"},
        {"name": "room", "type": "string"},
        {"name": "temp", "type": "int"},
    ],
    "event_time": "at",
}
HOT_PLAN: dict[str, Any] = {
    "root": "hot",
    "nodes": {
        "in": {"op": "source", "stream": "readings"},
        "hot": {"op": "select", "input": "in", "where": "temp > 20"},
    },
}
WINDOW_PLAN = {
    "root": "mean",
    "nodes": {
        "in": {"op": "source", "stream": "readings"},
        "mean": {
            "op": "aggregate",
            "input": "in",
            "by": ["room"],
            "window": {"kind": "tumbling", "size": "1s", "partial": True},
            "compute": {"n": "count(*)"},
        },
    },
}
HOT = {"plan": HOT_PLAN}
CHECKPOINTS = 100_000_000
"""Time between two checkpoints of a query (ns)."""


class Service:
    """All parts of a server but HTTP."""

    def __init__(self, data: Path, clock: Clock | None = None, **settings: Any) -> None:
        clock = clock or SystemClock()
        self.settings = Settings(data=data, checkpoint_interval=CHECKPOINTS // 1000, **settings)
        self.settings.results_directory.mkdir(parents=True, exist_ok=True)
        self.catalog = Catalog(self.settings.catalog_file)
        self.link = EngineLink(Hello(data, checkpoint_interval_ns=CHECKPOINTS))
        self.admission: AdmissionPolicy | None = None
        """The policy in force, if it is not that of the settings."""
        loop = asyncio.get_running_loop()
        self.parts = assemble(
            self.settings,
            self.catalog,
            self.link,
            clock,
            timers=loop,
            admission=lambda: self.admission or self.settings.admission,
        )
        self.streams, self.queries = self.parts.streams, self.parts.queries
        self.sequence = 0

    async def close(self) -> None:
        await self.queries.stop()
        await self.link.stop()
        self.parts.close()
        self.catalog.close()

    async def feed(self, *temps: int) -> None:
        """Append a row per temperature, a second apart in event time."""
        self.sequence += 1
        start = self.sequence * 1_000_000_000
        rows = [{"at": start + n * 1_000_000, "room": "hall", "temp": temp} for n, temp in enumerate(temps)]
        batch = decode_rows(self.streams.spec("readings").schema(), rows)
        await self.streams.enqueuer.ingest("tests", "readings", self.sequence, batch, 1000)

    async def answers(self, id_: str, count: int, after: int | None = None) -> list[dict[str, Any]]:
        """Wait for a number of answers, and return them."""
        with self.subscription(id_) as subscription:
            while subscription.position < count:
                await asyncio.wait_for(subscription.next(), PATIENCE)
        return list(json.loads(self.queries.results.pull(self.queries.get(id_), after).json())["rows"])

    def subscription(self, id_: str, after: str | None = None) -> Subscription:
        results = self.queries.results
        return Subscription(results, results.of(self.queries.get(id_)), after)

    async def kill_engine(self) -> None:
        """Kill the engine, and return when a new one runs the queries."""
        pid, restarts = self.link.pid, self.link.restarts
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await until(lambda: self.link.restarts > restarts, "another engine")
        await asyncio.wait_for(self.queries.placement.settled(), PATIENCE)

    async def ended(self, id_: str) -> QueryInfo:
        """Return a query once it has ended."""
        with self.subscription(id_) as subscription:
            while await asyncio.wait_for(subscription.next(), PATIENCE) is not None:
                pass
        return await self.queries.views.info(id_)


@asynccontextmanager
async def service(
    data: Path, *, engine: bool = True, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[Service]:
    made = Service(data, clock, **settings)
    if "readings" not in made.streams:
        made.streams.create(StreamSpec.model_validate(READINGS))
    try:
        if engine:
            await made.link.start(made.queries)
        await made.queries.start()
        await asyncio.wait_for(made.queries.placement.settled(), PATIENCE)
        yield made
    finally:
        await made.close()


def served(test: Callable[[Service], Awaitable[None]], data: Path, **settings: Any) -> None:
    async def run() -> None:
        async with service(data, **settings) as made:
            await test(made)

    asyncio.run(run())
