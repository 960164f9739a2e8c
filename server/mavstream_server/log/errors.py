"""Errors of logs.

LogError
    LogMissingError     there is no log in that directory
    LogBusyError        another writer has the log open
    LogMismatchError    the log was created with another schema or time than it is opened with
    LogCorruptError     a file cannot be a part of a log, and repairing it could lose rows silently
    LogClosedError      the writer was closed, or an earlier write failed and left its state unknown
    LogCompleteError    the log was completed: no rows can follow
    UnfitRowsError      rows that do not fit the schema; nothing was written
    PositionAheadError  a position that the log has not reached
    GapError            rows were removed before a cursor read them, or are damaged; it continues behind them
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from mavstream_protocol.errors import MavstreamError
from mavstream_server.log.checked_files import DamagedFrames


class LogError(MavstreamError):
    """Base class of errors of logs; `path` is the log's directory or the file at fault."""

    code = "log_error"

    def __init__(self, path: Path, detail: str) -> None:
        super().__init__(f"{path}: {detail}")
        self.path = path
        self.detail = detail


class LogMissingError(LogError):
    """There is no log in that directory."""

    code = "log_missing"


class LogBusyError(LogError):
    """Another writer has the log open."""

    code = "log_busy"


class LogMismatchError(LogError):
    """The log exists with a description that differs from the given one."""

    code = "log_mismatch"


class LogCorruptError(LogError):
    """A file of the log is damaged or of an unknown version."""

    code = "log_corrupt"


class LogClosedError(LogError):
    """The writer was closed, or an earlier write failed."""

    code = "log_closed"


class LogCompleteError(LogError):
    """The log was completed: no rows can follow."""

    code = "log_complete"


class UnfitRowsError(LogError):
    """Rows do not fit the schema of the log; none of them were written."""

    code = "unfit_rows"


class PositionAheadError(LogError):
    """A cursor was moved to a position that the log has not reached."""

    code = "position_ahead"


class GapCause(StrEnum):
    """Why a cursor cannot read rows."""

    RETENTION = "retention"
    DAMAGE = "damage"


class GapError(LogError):
    """The rows from `start` to `stop` (exclusive) were removed by retention, or are damaged.

    Raised once; the cursor continues at `stop`. `watermark` and `max_time` (us) are those of the log at
    `stop`: no window before them can be complete for a reader that missed the rows.
    """

    code = "gap"

    def __init__(
        self,
        path: Path,
        start: int,
        stop: int,
        watermark: int,
        max_time: int,
        cause: GapCause = GapCause.RETENTION,
    ) -> None:
        if cause is GapCause.RETENTION:
            why = "were removed by retention before this cursor read them"
            advice = "increase the retention, or read faster"
        else:
            why = "are damaged in the log's files"
            advice = "run 'mavstream check' for the place"
        super().__init__(path, f"rows {start} to {stop - 1} {why}; reading continues at {stop}; {advice}")
        self.start = start
        self.stop = stop
        self.watermark = watermark
        self.max_time = max_time
        self.cause = cause


class FrameDamaged(Exception):
    """A frame cannot be decoded; cursors turn it into a gap."""

    def __init__(self, damaged: DamagedFrames) -> None:
        super().__init__(damaged)
        self.damaged = damaged
