"""The process of a trial: reads a job from standard input, runs it in an engine, prints the result.

It reads the logs of the streams as they are on disk and writes nothing.
"""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Mapping, Sequence

from mavstream_protocol.errors import MavstreamError
from mavstream_protocol.schema import Schema
from mavstream_protocol.streams import field_specs
from mavstream_protocol.tuples import rows_of
from mavstream_protocol.typed_plan import TypedSource
from mavstream_protocol.wire.trials import TrialResult
from mavstream_server.columns.arrow import arrow_from_columns
from mavstream_server.columns.batch import Batch
from mavstream_server.core.clock import SystemClock
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.query_request import QueryRequest
from mavstream_server.engine.states import QueryState
from mavstream_server.engine.trial.job import FAILED, TrialJob
from mavstream_server.log.format.description import LogDescription
from mavstream_server.log.reader import LogReader
from mavstream_server.tables.stored import OpenTables

_MORE_STEPS = 100
"""Steps behind the last row, for what is still queued."""
_PAUSE_S, _PAUSES = 0.002, 40
"""Sources may wait up to 50 ms for more rows, so a trial is over when nothing has happened for longer."""


class _FirstAnswers:
    """Sink that keeps the first answers and counts all."""

    revision = 0

    def __init__(self, limit: int) -> None:
        self.offset = 0
        self.batches: list[Batch] = []
        self._limit = limit

    def append(self, batch: Batch, now: int, positions: Sequence[int]) -> None:
        """Take answers of the query."""
        if batch.size and self.offset < self._limit:
            self.batches.append(batch)
        self.offset += batch.size

    def change(self, schema: Schema) -> None:
        """Take answers of another schema, which a trial never has."""

    def restart(self, offset: int) -> None:
        """Continue at an offset, which a trial never does."""
        self.offset = offset


def run(job: TrialJob) -> TrialResult:
    """Run a trial; raises MavstreamError."""
    started = time.monotonic()
    engine = Engine(SystemClock(), tables=OpenTables(job.tables))
    positions, ends = {}, {}
    for source in {source.stream: source for source in job.plan.sources}.values():
        name, reader = source.stream, LogReader(job.streams / source.stream)
        _check(source, reader.description)
        engine.attach(name, reader)
        ends[name] = reader.end
        positions[name] = max(reader.begin, reader.end - job.rows)
    sink = _FirstAnswers(job.limit)
    request = QueryRequest("trial", job.plan, positions=positions, memory_limit=job.memory, shares=False)
    query = engine.start(request, sink)
    _process(engine, query, ends, job.seconds)
    if query.state is QueryState.FAILED:
        raise MavstreamError(str(query.reason))
    return TrialResult(
        fields=field_specs(job.plan.schema),
        rows=_rows(sink.batches, job.plan.schema, job.limit),
        results=sink.offset,
        read={name: position - positions[name] for name, position in sorted(_positions(query).items())},
        complete=_at_end(query, ends),
        seconds=time.monotonic() - started,
    )


def _check(source: TypedSource, found: LogDescription) -> None:
    """Refuse a stream that was removed and created again since the query was planned."""
    planned = source.schema.fields
    if found.schema.fields[: len(planned)] != planned or found.event_time != source.event_time:
        raise MavstreamError(
            f"stream {source.stream!r} has got another schema since the query was planned; try it again"
        )


def _process(engine: Engine, query: RunningQuery, ends: Mapping[str, int], seconds: float) -> None:
    """Step until the rows before `ends` are processed, or the time of the processor is used up.

    Streams may grow meanwhile, so there may always be more to do.
    """
    pauses = more = 0
    while pauses < _PAUSES and more < _MORE_STEPS and query.state is QueryState.RUNNING:
        if time.process_time() > seconds:
            return
        more = more + 1 if _at_end(query, ends) else 0
        if engine.step():
            pauses = 0
        else:
            pauses += 1
            time.sleep(_PAUSE_S)


def _positions(query: RunningQuery) -> dict[str, int]:
    """Return the position of the next row of each stream that a source would read."""
    found: dict[str, int] = {}
    streams = {source.name: source.stream for source in query.request.plan.sources}
    for task in query.sources.values():
        stream, position = streams[task.work.name], task.work.cursor.position
        found[stream] = min(position, found.get(stream, position))
    return found


def _at_end(query: RunningQuery, ends: Mapping[str, int]) -> bool:
    return all(position >= ends[stream] for stream, position in _positions(query).items())


def _rows(batches: Sequence[Batch], schema: Schema, limit: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for batch in batches:
        columns = {name: batch.columns[name] for name in schema.names}
        rows += rows_of(arrow_from_columns(columns, schema))
    return rows[:limit]


def main() -> None:
    """Run the job of standard input."""
    try:
        found = run(pickle.load(sys.stdin.buffer))
    except (MavstreamError, MemoryError) as error:
        sys.stdout.write(str(error) or "it needs more memory than a trial may take")
        sys.exit(FAILED)
    sys.stdout.write(found.model_dump_json())


if __name__ == "__main__":
    main()
