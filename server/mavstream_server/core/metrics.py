"""Figures: what an engine tells of itself and its queries, made to be cheap to take and small to send.

Named tuples, since thousands of them travel at a time: dataclasses take twice as long to pickle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from mavstream_server.core.latency import PER_OCTAVE

_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Latency:
    """How long after their arrival answers were there, since the query started. Times are nanoseconds.

    Buckets of several queries add up, so percentiles of a class are as exact as those of a query (9 %).
    """

    count: int = 0
    total: int = 0
    maximum: int = 0
    buckets: Mapping[int, int] = field(default_factory=dict)
    """Answers by bucket: number `b` ends at 2 ** ((b + 1) / 8) ns; empty ones are left out."""

    def __reduce__(self) -> tuple[type[Latency], tuple[object, ...]]:
        # What a dataclass does by itself takes several times as long.
        return Latency, (self.count, self.total, self.maximum, self.buckets)

    @classmethod
    def merged(cls, parts: Iterable[Latency]) -> Latency:
        """Return the latency of the answers of several queries together."""
        count = total = maximum = 0
        buckets: Counter[int] = Counter()
        for part in parts:
            count += part.count
            total += part.total
            maximum = max(maximum, part.maximum)
            buckets.update(part.buckets)
        return cls(count, total, maximum, buckets)

    def since(self, earlier: Latency) -> Latency:
        """Return the latency of the answers that came behind what was counted earlier."""
        if self.count == earlier.count:
            return Latency()
        known = earlier.buckets
        more = {
            bucket: new for bucket, count in self.buckets.items() if (new := count - known.get(bucket, 0))
        }
        longest = min(self.maximum, int(_end(max(more)))) if more else self.maximum
        return Latency(self.count - earlier.count, self.total - earlier.total, longest, more)

    @property
    def mean_ms(self) -> float | None:
        """The mean, or None without answers."""
        return self.total / self.count / _MS if self.count else None

    @property
    def max_ms(self) -> float | None:
        """The longest, or None without answers."""
        return self.maximum / _MS if self.count else None

    def percentile_ms(self, percent: float) -> float | None:
        """Return a latency that this share of the answers did not exceed, or None without answers."""
        if not self.count:
            return None
        rank, seen = max(1, ceil(self.count * percent / 100)), 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= rank:
                return min(_end(bucket), self.maximum) / _MS
        return self.maximum / _MS

    def summary(self) -> dict[str, float | None]:
        """Return mean, p50, p95, p99 and max in milliseconds, and how many answers were counted."""
        percentiles = {f"p{percent}": self.percentile_ms(percent) for percent in (50, 95, 99)}
        return {"count": self.count, "mean": self.mean_ms, **percentiles, "max": self.max_ms}

    def at_most(self, bounds_s: Sequence[float]) -> list[int]:
        """Return how many answers came within each of the bounds, as a Prometheus histogram wants it."""
        ends = [(_end(bucket), count) for bucket, count in self.buckets.items()]
        return [sum(count for end, count in ends if end <= bound * 1e9) for bound in bounds_s]


def _end(bucket: int) -> float:
    return float(2.0 ** ((bucket + 1) / PER_OCTAVE))


class SheddingInterval(NamedTuple):
    """An interval during which one share of rows was shed. Times are arrival times, in nanoseconds."""

    stream: str
    share: float
    """The share that was requested."""
    since: int
    """Arrival of the first row to which the share applied."""
    until: int
    """Arrival of the last row so far to which the share applied."""
    seen: int
    """Rows that arrived in the interval."""
    shed: int
    """How many of these rows were shed."""


class OperatorMetrics(NamedTuple):
    """An operator of a running query."""

    name: str
    """The plan's node, or `#output`."""
    operator: str
    """What it does: `source`, `select`, ..., `output`."""
    kind: str
    """`source`, `operational` or `output`."""
    state: str
    queued: int
    """Rows that wait at its inputs; of a source: in the log, unread."""
    queued_bytes: int
    state_bytes: int
    cost_per_tuple_ns: float
    selectivity: float
    tuples: int
    """Measured so far; 0 says that cost and selectivity are defaults."""
    rows_out: int
    counters: dict[str, int]
    sharers: int = 1
    """How many queries it is run for: more than one where a prefix is shared;"""
    shared_with: tuple[str, ...] = ()
    """and the ids of some of the others."""
    tuple_bytes: float = 64.0
    """Of a row that comes out."""
    input_bytes: float = 64.0
    """Of a row that comes in from a source."""


class QueryMetrics(NamedTuple):
    """A query as its engine sees it; what has ended keeps its sums and holds nothing."""

    id: str
    state: str
    reason: str | None
    class_name: str
    epoch: int
    offset: int
    """Of the next answer in the result log."""
    rows_in: int
    """Rows read from its streams, once per source."""
    rows_out: int
    """Answers since it started."""
    queued_bytes: int
    state_bytes: int
    backlog_bytes: int
    latency: Latency
    counters: dict[str, dict[str, int]]
    positions: dict[str, int]
    """The lowest position that it still needs, by stream; none while it is paused or when it has ended."""
    operators: tuple[OperatorMetrics, ...]
    """Those of the plan that runs."""
    spells: tuple[SheddingInterval, ...] = ()
    """When rows were left out to shed load: the last 32 times of each source, oldest first."""
    plan_version: int = 0
    """Which plan that is: 0 for the one it started with, else the number that came with the swap."""
    plan_swaps: int = 0
    """How often its plan was swapped since it started."""
    swap: str | None = None
    """How far a swap that is under way has come: `draining`, `warming` or `leaving`."""
    swap_note: str | None = None
    """Why the last swap was given up, if it was."""


class TargetMetrics(NamedTuple):
    """What is watched of a query with targets: part of its figures, quicker to take and smaller to send."""

    epoch: int
    rows_in: int
    queued_bytes: int
    state_bytes: int
    backlog_bytes: int
    latency: Latency
    shed: int
    """Rows that were left out so far,"""
    share: float
    """the share that is left out now,"""
    weight: int
    """and what it weighs in its class."""


class TargetMetricsReply(NamedTuple):
    """The vitals of running queries, by id."""

    queries: dict[str, TargetMetrics]


class ClassMetrics(NamedTuple):
    """The queries of a class together."""

    queries: int
    rows_in: int
    rows_out: int
    queued_bytes: int
    state_bytes: int
    backlog_bytes: int
    latency: Latency


class ClassMetricsReply(NamedTuple):
    """All classes that have queries, by name."""

    classes: dict[str, ClassMetrics]


class EngineMetrics(NamedTuple):
    """The engine as a whole."""

    pid: int
    policy: str
    uptime_ns: int
    busy_ns: int
    """Spent in slices,"""
    class_busy_ns: dict[str, int]
    """and the same by class."""
    slices: int
    ids: tuple[str, ...]
    """All queries that it knows, ended ones included."""
    cpu_ns: int
    """Of the process, in user and system mode."""
    resident_bytes: int


class EngineReport(NamedTuple):
    """The engine and its queries at about one time."""

    engine: EngineMetrics
    queries: dict[str, QueryMetrics]
