"""What a feeder has done so far."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StreamReport:
    """Rows of one stream, and how late they were sent."""

    sent: int
    acked: int
    lag_p50_ms: float | None
    lag_p99_ms: float | None
    waiting: bool
    """Whether the stream waits for credit."""


@dataclass(frozen=True, slots=True)
class Report:
    """Rows of all streams; lag is the time from due to sent."""

    seconds: float
    sent: int
    acked: int
    frames: int
    reconnects: int
    lag_p50_ms: float | None
    lag_p99_ms: float | None
    streams: dict[str, StreamReport]

    def as_json(self) -> dict[str, Any]:
        """Return plain objects for JSON."""
        return asdict(self)


def milliseconds(seconds: float | None) -> float | None:
    """Return a time as reports show it."""
    return None if seconds is None else round(seconds * 1000, 3)
