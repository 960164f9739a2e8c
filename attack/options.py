"""Options of a run of the suite."""

from __future__ import annotations

from typing import NamedTuple


class Options(NamedTuple):
    """How much is sent, and from which seed it is generated."""

    requests: int = 20_000
    """Requests of the HTTP fuzzers."""
    frames: int = 20_000
    """Frames of the websocket fuzzer."""
    seed: int = 1
    seconds: float = 6.0
    """How long attacks last that have no count: floods, kills, slices."""
    patience: float = 1.0
    """Seconds after which a wait is a violation."""
