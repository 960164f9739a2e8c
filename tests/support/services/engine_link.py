"""Real engine processes for tests: a stream that they read, their answers, and the events of their link."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.servers.running_server import PATIENCE

from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.schema import Schema
from mavstream_protocol.typed_plan import StreamShape, TypedPlan
from mavstream_server.columns.column import Column
from mavstream_server.engine.process.events import Need
from mavstream_server.engine.process.messages import Hello
from mavstream_server.log import LogDescription, LogMissingError, LogReader, LogWriter
from mavstream_server.supervisor.crash import Crash
from mavstream_server.supervisor.engine_link import EngineLink, NoListener
from mavstream_server.testing.streams import parse_fields

IN = {"in": {"op": "source", "stream": "readings"}}
HOT = {**IN, "hot": {"op": "select", "input": "in", "where": "temp > 20"}}
ROOTS = {**IN, "r": {"op": "project", "input": "in", "compute": {"x": "sqrt(temp)"}}}


class Readings:
    """A stream log as the API process writes it."""

    def __init__(self, data: Path, name: str = "readings") -> None:
        self.name = name
        self.schema: Schema = parse_fields("room string null, temp int")
        self.path = data / "streams" / name
        self.writer = LogWriter(self.path, LogDescription(self.schema))

    def append(self, *temps: int) -> None:
        rooms = Column.from_list(self.schema.fields[0].type, [f"room {temp}" for temp in temps])
        columns = {"room": rooms, "temp": Column.from_list(self.schema.fields[1].type, list(temps))}
        self.writer.append(columns, len(temps), time.time_ns(), producer=1, sequence=1)

    def plan(self, nodes: dict[str, Any]) -> TypedPlan:
        """Type a plan whose source `in` reads this stream."""
        nodes = {**nodes, "in": {**IN["in"], "stream": self.name}}
        return infer(
            Plan.parse({"root": list(nodes)[-1], "nodes": nodes}), {self.name: StreamShape(self.schema)}
        )

    def __enter__(self) -> Readings:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.writer.close()


class Events(NoListener):
    """The events of a link; waits are woken by events, not by polling."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, str, str | None]] = []
        self.died = self.restarted = 0
        self.crashes: list[Crash] = []
        self._news = asyncio.Event()

    async def until(self, holds: Callable[[], object], what: str) -> None:
        """Wait until a condition holds; it is checked now and after each event."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not holds():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"waited in vain for {what}") from None

    def query_ended(self, id_: str, state: str, reason: str | None) -> None:
        self.ended.append((id_, state, reason))
        self._news.set()

    def engine_died(self, crash: Crash) -> None:
        self.died += 1
        self.crashes.append(crash)
        self._news.set()

    def engine_restarted(self) -> None:
        self.restarted += 1
        self._news.set()

    def results_appended(self) -> None:
        self._news.set()

    def positions_changed(self, needs: Mapping[str, Need]) -> None:
        self._news.set()


def results(data: Path, id_: str) -> list[tuple[int, object]]:
    """Return epoch and temperature of all answers in a result log."""
    try:
        reader = LogReader(data / "results" / id_)
    except LogMissingError:
        return []
    cursor, found = reader.cursor(reader.begin), []
    field = next(field for field in reader.description.schema if field.name == "temp")
    while (step := cursor.next()) is not None:
        frame, _ = step
        found += [(frame.producer, value) for value in frame.column("temp").to_list(field.type)]
    return found


def drive(
    data: Path,
    script: Callable[[EngineLink, Events], Awaitable[None]],
    events: Events | None = None,
    **hello: Any,
) -> None:
    """Run a script with a link to a new engine process and the events of the link."""

    async def main() -> None:
        link, listener = EngineLink(Hello(data, **hello)), events or Events()
        await link.start(listener)
        try:
            await script(link, listener)
        finally:
            await link.stop()

    asyncio.run(main())
