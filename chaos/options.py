"""Options of a run."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from chaos.schedule import KINDS


class ChaosOptions(NamedTuple):
    """How many rounds there are, and what they do."""

    seed: int = 1
    rounds: int = 20
    seconds: float = 0.4
    """Mean time that a round feeds before its fault."""
    only: tuple[str, ...] = KINDS
    """The faults to choose from; none for rounds without faults."""
    drain: float = 120.0
    """Seconds that the queries have to finish after the streams are complete."""
    keep: Path | None = None
    """Where the data directory and the log of the server are copied to after a violation."""
