"""The outcome of a demo: metrics of each class, and failed checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mavstream_feeder.demo.story import Told

QUANTILES = ("mean", "p50", "p95", "p99")


@dataclass(frozen=True, slots=True)
class ClassMetrics:
    """Metrics of a class."""

    priority: int
    queries: int
    results: int
    """Rows that subscribers received."""
    latency_ms: dict[str, float | None]
    """mean, p50, p95, p99 of the latency: from the arrival of the row that triggered a result to its
    output."""

    @classmethod
    def of(cls, stats: dict[str, Any], queries: int, results: int) -> ClassMetrics:
        """Return the metrics of a class from its part of `/v1/stats`."""
        latency = {name: _rounded(stats["latency_ms"][name]) for name in QUANTILES}
        return cls(stats["priority"], queries, results, latency)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a demo."""

    classes: dict[str, ClassMetrics]
    tuples_in: int
    tuples_acked: int | None
    """None if another feeder fed, whose acknowledgements are not known."""
    tuples_lost: int | None
    failures: tuple[str, ...] = ()
    """Failed checks, in words."""
    told: Told | None = None
    """What the story showed, if it was told."""

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as JSON values, for `--json`."""
        classes = {
            name: {"queries": each.queries, "results": each.results, "latency_ms": each.latency_ms}
            for name, each in self.classes.items()
        }
        shown: dict[str, Any] = {
            "classes": classes,
            "tuples_in": self.tuples_in,
            "tuples_acked": self.tuples_acked,
            "tuples_lost": self.tuples_lost,
        }
        return shown if self.told is None else {**shown, "story": self.told.as_json()}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
