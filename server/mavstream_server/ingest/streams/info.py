"""Descriptions of streams for clients."""

from __future__ import annotations

from mavstream_protocol.instants import FIRST_INSTANT, LAST_INSTANT, format_instant
from mavstream_protocol.wire.resources import StreamInfo
from mavstream_server.catalog.producers import ProducerRegistry
from mavstream_server.columns.batch import BEGIN_OF_TIME
from mavstream_server.core.errors import OverQuota
from mavstream_server.core.importance import Importance
from mavstream_server.ingest.retention import StreamRetention
from mavstream_server.ingest.stream_writer import StreamWriter


def stream_info(
    log: StreamWriter, retention: StreamRetention, producers: ProducerRegistry, importance: Importance
) -> StreamInfo:
    """Return a description of a stream."""
    writer, spec = log.writer, log.spec
    watermark = BEGIN_OF_TIME if writer is None else writer.watermark
    held = log.held if isinstance(log.held, OverQuota) else None
    settled = None
    if watermark != BEGIN_OF_TIME:
        settled = format_instant(min(max(watermark, FIRST_INSTANT), LAST_INSTANT))
    return StreamInfo(
        name=spec.name,
        spec=spec,
        position=0 if writer is None else writer.end,
        begin=0 if writer is None else writer.begin,
        bytes=log.nbytes,
        watermark=settled,
        producers={producers.name(number): last for number, last in sorted(log.last.items())},
        over_quota=held is not None or (spec.quota is not None and log.nbytes > spec.quota),
        held_by=retention.held_by(log) if held is None else held.held_by,
        importance=importance.of_stream(spec.name),
        overloaded=log.overload.active,
        owner=log.owner,
    )
