"""Queries that read each other in an engine, with their result logs in a directory."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.typed_plan import StreamShape
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.query_request import QueryRequest
from mavstream_server.engine.sinks import ResultLogSink
from mavstream_server.log.format.description import LogDescription
from mavstream_server.log.result_reader import ResultReader
from mavstream_server.log.writer import LogWriter
from mavstream_server.tables.stored import OpenTables
from mavstream_server.testing import ManualClock, ScriptedStream, ScriptedTable


class ChainedQueries:
    """An engine whose queries can read each other's results, by name; their ids are their names and `-1`."""

    def __init__(
        self,
        directory: Path,
        clock: ManualClock,
        streams: list[ScriptedStream],
        tables: list[ScriptedTable] | None = None,
        **options: Any,
    ) -> None:
        stored = OpenTables(tables[0].path.parent) if tables else None
        self.engine = Engine(clock, "rr", **{"train": 8, "tables": stored, **options})
        self._directory = directory / "results"
        self._shapes: dict[str, StreamShape] = {stream.name: stream.shape for stream in streams}
        self._tables = {table.name: table.schema for table in tables or ()}
        for stream in streams:
            self.engine.attach(stream.name, stream.reader)
        self._open = ExitStack()

    def start(self, name: str, nodes: Mapping[str, Any], root: str, **request: Any) -> RunningQuery:
        id_ = f"{name}-1"
        plan = infer(Plan.parse({"root": root, "nodes": nodes}), self._shapes, self._tables)
        self._shapes[name] = plan.results(id_)
        writer = self._open.enter_context(LogWriter(self._directory / id_, LogDescription(plan.schema)))

        def appended() -> None:
            self.engine.chains.appended(id_)

        sink = ResultLogSink(writer, plan.schema.names, 1, appended=appended)
        query = self.engine.start(QueryRequest(id_, plan, **{"earliest": True, **request}), sink)
        reader = ResultReader(self._directory / id_)
        self._open.callback(reader.close)
        self.engine.attach_results(name, id_, reader)
        return query

    def close(self) -> None:
        """Close the result logs."""
        self._open.close()
