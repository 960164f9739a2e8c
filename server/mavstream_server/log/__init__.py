"""Logs: append-only files of columnar frames that store streams and results, and cursors to read them."""

from mavstream_server.log.cursor import Backlog, Cursor, Span
from mavstream_server.log.errors import (
    GapCause,
    GapError,
    LogBusyError,
    LogClosedError,
    LogCompleteError,
    LogCorruptError,
    LogError,
    LogMismatchError,
    LogMissingError,
    PositionAheadError,
    UnfitRowsError,
)
from mavstream_server.log.format.description import LogDescription, load_description
from mavstream_server.log.format.encoding import NewFrame
from mavstream_server.log.format.frame import Frame
from mavstream_server.log.format.layout import FrameKind
from mavstream_server.log.gather import gather, gather_arrivals, gather_positions, gather_watermarks
from mavstream_server.log.options import LogOptions, Sync
from mavstream_server.log.reader import LogReader
from mavstream_server.log.retention import Removed, Retention
from mavstream_server.log.state import LogEnd
from mavstream_server.log.writer import LogWriter

__all__ = [
    "Backlog",
    "Cursor",
    "Frame",
    "FrameKind",
    "GapCause",
    "GapError",
    "LogBusyError",
    "LogClosedError",
    "LogCompleteError",
    "LogCorruptError",
    "LogDescription",
    "LogEnd",
    "LogError",
    "LogMismatchError",
    "LogMissingError",
    "LogOptions",
    "LogReader",
    "LogWriter",
    "NewFrame",
    "PositionAheadError",
    "Removed",
    "Retention",
    "Span",
    "Sync",
    "UnfitRowsError",
    "gather",
    "gather_arrivals",
    "gather_positions",
    "gather_watermarks",
    "load_description",
]
