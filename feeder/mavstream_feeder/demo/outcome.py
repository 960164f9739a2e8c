"""What a demo found: figures per class, and what is not as it should be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

QUANTILES = ("mean", "p50", "p95", "p99")


@dataclass(frozen=True, slots=True)
class ClassFigures:
    """What a class got."""

    priority: int
    queries: int
    results: int
    """Rows that subscribers received."""
    latency_ms: dict[str, float | None]
    """mean, p50, p95, p99: from the arrival of the row that made a result possible to its output."""

    @classmethod
    def of(cls, shown: dict[str, Any], queries: int, results: int) -> ClassFigures:
        """Return the figures of a class as `/v1/stats` shows it."""
        latency = {name: _rounded(shown["latency_ms"][name]) for name in QUANTILES}
        return cls(shown["priority"], queries, results, latency)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a demo."""

    classes: dict[str, ClassFigures]
    tuples_in: int
    tuples_acked: int | None
    """None where another feeder fed, whose acks are not known."""
    tuples_lost: int | None
    complaints: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        classes = {
            name: {"queries": each.queries, "results": each.results, "latency_ms": each.latency_ms}
            for name, each in self.classes.items()
        }
        return {
            "classes": classes,
            "tuples_in": self.tuples_in,
            "tuples_acked": self.tuples_acked,
            "tuples_lost": self.tuples_lost,
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
