"""Metrics of a running plan, the input of the cost model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mavstream_server.scheduling.statistics import Statistics

DEFAULT_RATE = 1000.0


@dataclass(frozen=True, slots=True)
class PlanMetrics:
    """Rates of streams and statistics of operators; missing ones are estimated."""

    rates: Mapping[str, float] = field(default_factory=dict)
    """Rows per second, by stream."""
    operators: Mapping[str, Statistics] = field(default_factory=dict)
    """Statistics by the node's name in the running plan."""

    def rate(self, stream: str) -> float:
        """Return the rows per second of a stream."""
        return self.rates.get(stream, DEFAULT_RATE)

    def measured(self, node: str) -> Statistics | None:
        """Return the statistics of a node, or None if it was never measured and they are mere defaults."""
        found = self.operators.get(node)
        return found if found is not None and found.tuples > 0 else None
