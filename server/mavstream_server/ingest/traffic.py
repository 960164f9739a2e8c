"""Counters of received, acked and rejected rows per stream since the server started."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Traffic:
    """Rows by stream; `repeated` counts frames. A frame that cannot be decoded counts as one rejected row."""

    received: Counter[str] = field(default_factory=Counter)
    acked: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    repeated: Counter[str] = field(default_factory=Counter)
