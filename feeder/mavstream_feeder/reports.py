"""Reports: metrics of a feeder and its streams."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Stopped(StrEnum):
    """Why a feed ended."""

    DONE = "done"
    """All rows were fed, or all rates ended."""
    TIME = "time"
    """The time limit was reached."""
    ASKED = "asked"
    """It was asked to stop, for example by Ctrl-C."""
    FAILED = "failed"
    """It was aborted, by an error or a second Ctrl-C; rows that were not acknowledged may be missing."""


@dataclass(frozen=True, slots=True)
class StreamReport:
    """Metrics of one stream; lag is the time from due to sent."""

    sent: int
    acked: int
    rejected: int
    """Rows that the server refused permanently."""
    lag_p50_ms: float | None
    lag_p99_ms: float | None
    lag_max_ms: float | None
    waiting: bool
    """Whether the stream waits for credit."""
    feed: str
    """The name of its feed: the stream's own, unless its file is split."""
    file: str
    row: int
    """Position of the feed: rows of the file that are settled, in the current pass."""
    passes: int
    """Completed passes over the file."""
    over: bool
    """Whether the file has no more rows to feed."""


@dataclass(frozen=True, slots=True)
class Report:
    """Metrics of all streams together; lag is the time from due to sent."""

    seconds: float
    sent: int
    acked: int
    rejected: int
    unmatched: dict[str, int]
    """Rows of split files that went to no stream, by file."""
    frames: int
    reconnects: int
    lag_p50_ms: float | None
    lag_p99_ms: float | None
    lag_max_ms: float | None
    stopped: Stopped | None
    """Why it ended; None while it runs."""
    streams: dict[str, StreamReport]
    bad_rows: int = 0
    """Rows of files that could not be read and were left out."""

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return asdict(self)


def milliseconds(seconds: float | None) -> float | None:
    """Return seconds as milliseconds, rounded for a report."""
    return None if seconds is None else round(seconds * 1000, 3)
