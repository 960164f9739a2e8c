"""What a feeder has done so far."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Stopped(StrEnum):
    """Why a feed ended."""

    DONE = "done"
    """Rows or rates were over."""
    TIME = "time"
    """The seconds were over."""
    ASKED = "asked"
    """It was asked to stop, by Ctrl-C for one."""
    FAILED = "failed"
    """It was cut short, by an error or a second Ctrl-C; what was not acked may be missing."""


@dataclass(frozen=True, slots=True)
class StreamReport:
    """Rows of one stream, and how late they were sent."""

    sent: int
    acked: int
    rejected: int
    """Rows that the server refused for good."""
    lag_p50_ms: float | None
    lag_p99_ms: float | None
    lag_max_ms: float | None
    waiting: bool
    """Whether the stream waits for credit."""
    feed: str
    """The name of its file or files: the stream's own, unless they are split."""
    file: str
    row: int
    """Where the feed stands: rows of the file that are settled, in the pass that it is in."""
    passes: int
    """Passes over the file that are done."""
    over: bool
    """Whether the file has no more rows to feed."""


@dataclass(frozen=True, slots=True)
class Report:
    """Rows of all streams; lag is the time from due to sent."""

    seconds: float
    sent: int
    acked: int
    rejected: int
    unmatched: dict[str, int]
    """Rows of split files, by file, that went to no stream."""
    frames: int
    reconnects: int
    lag_p50_ms: float | None
    lag_p99_ms: float | None
    lag_max_ms: float | None
    stopped: Stopped | None
    """Why it ended; None while it runs."""
    streams: dict[str, StreamReport]

    def as_json(self) -> dict[str, Any]:
        """Return plain objects for JSON."""
        return asdict(self)


def milliseconds(seconds: float | None) -> float | None:
    """Return a time as reports show it."""
    return None if seconds is None else round(seconds * 1000, 3)
