"""Answers of a plan as a runner gives them: in micro-batches over logs, cut at given positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from tests.support.spark.answers import Row, rows_of

from mavstream_protocol.tuples import arrow_schema
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_server.columns.batch import BEGIN_OF_TIME, END_OF_TIME
from mavstream_server.log import LogReader
from mavstream_server.results.encoding import plain_batch
from mavstream_server.results.row_metadata import gather_rows, with_metadata
from mavstream_server.testing import ScriptedStream
from mavstream_spark.runs.batches import next_batch
from mavstream_spark.runs.incremental import answers, stream_frame
from mavstream_spark.runs.state import RunState, StreamEnd

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StoredStream:
    """The rows of a stream with their metadata, as the server gives them."""

    def __init__(self, stream: ScriptedStream) -> None:
        self.name = stream.name
        reader = LogReader(stream.writer.path)
        self.shape = stream.shape
        self.complete = reader.watermark == END_OF_TIME
        schema = with_metadata(self.shape.schema, "the stream")
        cursor, found = reader.cursor(0), list[pa.RecordBatch]()
        while spans := cursor.take(1 << 40):
            rows = [span for span in spans if span[2] > span[1]]
            if rows:
                found.append(plain_batch(gather_rows(rows, schema), schema))
        reader.close()
        self.rows = pa.Table.from_batches(found, arrow_schema(schema))
        self._times = self._micros("_time")
        self._watermarks = self._micros("_watermark")

    def _micros(self, name: str) -> list[int]:
        values = self.rows.column(name).cast(pa.int64()).to_pylist()
        return [BEGIN_OF_TIME if value is None else value for value in values]

    def end(self, position: int) -> StreamEnd:
        """Return the end of the stream when it had so many rows."""
        latest = max(self._times[:position], default=BEGIN_OF_TIME)
        if position >= len(self._times):
            watermark = END_OF_TIME if self.complete else latest
            return StreamEnd(len(self._times), watermark, latest, self.complete)
        return StreamEnd(position, self._watermarks[position], latest, False)


def answered_in_batches(
    spark: SparkSession,
    plan: TypedPlan,
    streams: Sequence[StoredStream],
    cuts: Sequence[Mapping[str, int]],
    state: RunState | None = None,
) -> list[Row]:
    """Return all answers; a batch ends at each cut, given by stream, and the last one at the end.

    The state is written as JSON and read again between two batches, as after a restart.
    """
    used = {source.stream for source in plan.sources}
    streams = [stream for stream in streams if stream.name in used]
    found: list[Row] = []
    state = state or RunState.parse({"positions": dict.fromkeys(used, 0), "gaps": {}})
    for ends in _ends(streams, cuts):
        batch = next_batch(plan, state, ends)
        if batch.answers:
            frames = {}
            for stream in streams:
                low, start, stop = batch.ranges[stream.name]
                rows = spark.createDataFrame(stream.rows.slice(low, stop - low))
                frames[stream.name] = stream_frame(rows, start)
            found += rows_of(answers(plan, batch, frames).toArrow())
        state = RunState.parse(batch.state.json())
    return found


def _ends(
    streams: Sequence[StoredStream], cuts: Sequence[Mapping[str, int]]
) -> Iterator[dict[str, StreamEnd]]:
    for cut in cuts:
        yield {stream.name: stream.end(cut.get(stream.name, 0)) for stream in streams}
    yield {stream.name: stream.end(1 << 40) for stream in streams}
