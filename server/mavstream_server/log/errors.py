"""What can go wrong with a log.

LogError
    LogMissingError     there is no log in that directory
    LogBusyError        another writer has it
    LogMismatchError    the log was created with another schema or time than it is opened with
    LogCorruptError     a file is not what a log may contain, and repairing it would lose rows unseen
    LogClosedError      the writer was closed, or an earlier write failed and left its state unknown
    UnfitRowsError      rows that do not fit the schema; nothing was written
    PositionAheadError  a position that the log has not reached
    GapError            rows that a cursor wanted are no longer there; the cursor stands behind them
"""

from __future__ import annotations

from pathlib import Path

from mavstream_protocol.errors import MavstreamError


class LogError(MavstreamError):
    """Base of what goes wrong with a log; `path` is its directory or the file at fault."""

    code = "log_error"

    def __init__(self, path: Path, detail: str) -> None:
        super().__init__(f"{path}: {detail}")
        self.path = path
        self.detail = detail


class LogMissingError(LogError):
    """There is no log in that directory."""

    code = "log_missing"


class LogBusyError(LogError):
    """Another writer has the log."""

    code = "log_busy"


class LogMismatchError(LogError):
    """The log exists with another description than the one given."""

    code = "log_mismatch"


class LogCorruptError(LogError):
    """A file of the log cannot be understood."""

    code = "log_corrupt"


class LogClosedError(LogError):
    """The writer takes no more rows."""

    code = "log_closed"


class LogCompleteError(LogError):
    """The log was completed: no rows can follow."""

    code = "log_complete"


class UnfitRowsError(LogError):
    """Rows that do not fit the schema of the log; nothing of them was written."""

    code = "unfit_rows"


class PositionAheadError(LogError):
    """A cursor was sent to a position that the log has not reached."""

    code = "position_ahead"


class GapError(LogError):
    """Rows from `start` up to, not including, `stop` are no longer there.

    Raised once; the cursor then stands at `stop`. `watermark` and `max_time` are what the log knew there:
    nothing before them can be complete for whoever missed the rows.
    """

    code = "gap"

    def __init__(self, path: Path, start: int, stop: int, watermark: int, max_time: int) -> None:
        super().__init__(
            path,
            f"rows {start} to {stop - 1} were removed by retention before this cursor read them; "
            f"reading goes on at {stop}; keep more, or read faster",
        )
        self.start = start
        self.stop = stop
        self.watermark = watermark
        self.max_time = max_time
