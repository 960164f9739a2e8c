"""The files of a stream: its log, with the fields of its specification."""

from __future__ import annotations

from pathlib import Path

from mavstream_protocol.streams import StreamSpec
from mavstream_server.log import LogDescription, LogError, LogOptions, LogReader, LogWriter
from mavstream_server.log.format.description import stored_description
from mavstream_server.log.format.segment import list_segments

LARGEST_SEGMENT = 64 << 20
SMALLEST_SEGMENT = 64 << 10


def segment_bytes(spec: StreamSpec) -> int:
    """Return the segment size of a stream: segments are removed whole, so several must fit its limits."""
    limits = [spec.quota, spec.retention.bytes if spec.retention else None]
    wanted = min([limit // 8 for limit in limits if limit is not None], default=LARGEST_SEGMENT)
    return min(max(wanted, SMALLEST_SEGMENT), LARGEST_SEGMENT)


def open_log(path: Path, spec: StreamSpec, options: LogOptions) -> LogWriter:
    """Open the log of a stream, creating it if missing; fields that it lacks are added.

    It may have more than the specification. Raises LogError, OSError.
    """
    schema = spec.schema()
    wanted = LogDescription(schema, spec.event_time, spec.lateness)
    writer = LogWriter(path, stored_description(path, wanted), options)
    lacking = schema.fields[len(writer.description.schema) :]
    if lacking:
        writer.add_fields(lacking)
    return writer


def has_rows(path: Path) -> bool:
    """Return whether a directory holds a log with rows, or files that cannot be read."""
    try:
        return bool(list_segments(path)) and LogReader(path).end > 0
    except LogError:
        return True
