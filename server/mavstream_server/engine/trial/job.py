"""What a trial needs and gives, as it crosses between the processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mavstream_protocol.typed_plan import TypedPlan

FAILED = 3
"""Exit code of a trial whose query failed; the reason is printed instead of a result."""


@dataclass(frozen=True, slots=True)
class TrialJob:
    """A query to be tried on the last rows of its streams."""

    plan: TypedPlan
    streams: Path
    """The directory with the logs of the streams."""
    tables: Path
    rows: int
    """The last rows of each stream that are read."""
    limit: int
    """The most answers that are returned."""
    seconds: float
    """The time of a processor after which it ends with what it has, its start included."""
    memory: int
    """Bytes in queues and state beyond which it fails."""
