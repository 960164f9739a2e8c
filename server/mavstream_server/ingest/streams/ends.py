"""Streams as runs see them: where they end and, for a query that begins, where it begins to read."""

from __future__ import annotations

from typing import NamedTuple

from mavstream_protocol.queries import ReadFrom
from mavstream_protocol.schema import Schema
from mavstream_protocol.streams import field_specs
from mavstream_protocol.wire.runs import RunStream
from mavstream_server.columns.batch import BEGIN_OF_TIME, END_OF_TIME
from mavstream_server.ingest.stream_writer import StreamWriter
from mavstream_server.log import LogReader


class Beginning(NamedTuple):
    """Where a query begins to read a stream."""

    position: int
    gap: int | None
    """The largest time of the rows before (us); None if there were none."""


def run_stream(log: StreamWriter, schema: Schema) -> RunStream:
    """Return a stream as it is now; `schema` has the fields that the query sees. Raises ServiceError."""
    position, watermark = log.readable_end
    assert log.writer is not None
    return RunStream(
        fields=field_specs(schema),
        event_time=log.spec.event_time,
        begin=log.writer.begin,
        end=position,
        watermark=_known(watermark),
        latest=_known(log.writer.latest_time),
        complete=watermark == END_OF_TIME,
    )


def beginning(log: StreamWriter, read_from: ReadFrom) -> Beginning:
    """Return where a query that begins now reads a stream from; raises ServiceError."""
    _ = log.readable_end
    writer = log.writer
    assert writer is not None
    if read_from is ReadFrom.NOW:
        return Beginning(writer.end, _known(writer.latest_time))
    if not writer.begin:
        return Beginning(0, None)
    reader = LogReader(writer.path)
    try:
        frames = reader.cursor(writer.begin).take(1)
        latest = frames[0][0].max_before if frames else writer.latest_time
        return Beginning(writer.begin, _known(latest))
    finally:
        reader.close()


def _known(time: int) -> int | None:
    return None if time == BEGIN_OF_TIME else time
