"""Latencies of a class between two moments, from histograms that only grow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

_PER_OCTAVE = 8
"""Bucket `b` of the server's histograms ends at 2 ** ((b + 1) / 8) ns."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """Percentiles of the latencies of a class during an act; None without answers."""

    answers: int
    p50: float | None
    p99: float | None

    @classmethod
    def between(cls, before: Mapping[str, Any], after: Mapping[str, Any]) -> Latencies:
        """Return those of the answers between two statistics of a class, parts of `/v1/stats`."""
        old = before["latency_buckets"]
        buckets = {int(key): count - old.get(key, 0) for key, count in after["latency_buckets"].items()}
        return cls(max(sum(buckets.values()), 0), *(_percentile(buckets, each) for each in (50, 99)))

    def as_json(self) -> dict[str, Any]:
        """Return the values for `--json`, in milliseconds."""
        return {"answers": self.answers, "p50_ms": self.p50, "p99_ms": self.p99}


def _percentile(buckets: Mapping[int, int], percent: float) -> float | None:
    total, seen = sum(buckets.values()), 0
    if total <= 0:
        return None
    rank = ceil(total * percent / 100)
    for bucket in sorted(buckets):
        seen += buckets[bucket]
        if seen >= rank:
            return round(float(2.0 ** ((bucket + 1) / _PER_OCTAVE)) / 1e6, 3)
    return None
