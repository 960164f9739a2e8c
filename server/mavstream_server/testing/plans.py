"""Runs plans over scripted streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.schema import Schema
from mavstream_server.columns.batch import Batch
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.query_request import QueryRequest
from mavstream_server.engine.sinks import MemorySink
from mavstream_server.planning.run_options import RunOptions
from mavstream_server.tables.stored import OpenTables
from mavstream_server.testing.clock import ManualClock
from mavstream_server.testing.streams import ScriptedStream
from mavstream_server.testing.tables import ScriptedTable

Row = tuple[Any, ...]


@dataclass(slots=True)
class PlanRun:
    """A query over scripted streams, with its engine, to be stepped or run."""

    engine: Engine
    query: RunningQuery
    sink: MemorySink
    schema: Schema

    def rows(self) -> list[Row]:
        """Run until there is nothing to do and return all answers so far, in order."""
        self.engine.run()
        return self.answers()

    def answers(self) -> list[Row]:
        """Return the answers so far, each with the columns of the plan that gave it."""
        rows: list[Row] = []
        schema, changes = self.schema, list(self.sink.changes)
        for batch in self.sink.batches:
            while changes and changes[0][0] <= len(rows):
                schema = changes.pop(0)[1]
            rows += to_rows(batch, schema)
        return rows


def run_plan(
    nodes: Mapping[str, Any],
    root: str,
    streams: Iterable[ScriptedStream],
    *,
    tables: Iterable[ScriptedTable] = (),
    clock: ManualClock | None = None,
    policy: str = "rr",
    policy_options: Mapping[str, Any] | None = None,
    train: int = 4096,
    options: RunOptions | None = None,
    earliest: bool = True,
    engine: Engine | None = None,
    id_: str = "q",
    saved: bytes | None = None,
    sink: MemorySink | None = None,
    **request: Any,
) -> PlanRun:
    """Check and start a plan, by default from the first row; the returned query has not run yet."""
    streams, tables = list(streams), list(tables)
    typed = infer(
        Plan.parse({"root": root, "nodes": nodes}),
        {stream.name: stream.shape for stream in streams},
        {table.name: table.schema for table in tables},
    )
    if engine is None:
        stored = OpenTables(tables[0].path.parent) if tables else None
        engine = Engine(clock or ManualClock(), policy, policy_options, train=train, tables=stored)
        for stream in streams:
            engine.attach(stream.name, stream.reader)
    sink = sink or MemorySink()
    made = QueryRequest(id_, typed, options=options or RunOptions(), earliest=earliest, **request)
    query = engine.start(made, sink, saved)
    return PlanRun(engine, query, sink, typed.schema)


def to_rows(batch: Batch, schema: Schema) -> list[Row]:
    """Return a batch as tuples of Python values."""
    columns = [batch.columns[field.name].to_list(field.type) for field in schema]
    return list(zip(*columns, strict=True))
