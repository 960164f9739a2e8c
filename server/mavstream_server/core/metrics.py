"""Metrics that an engine reports about itself and its queries, as small tuples.

Named tuples, because thousands of them are sent at a time: dataclasses take twice as long to pickle.
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
    """Latency of a query's answers since it started, as a histogram. Times are in nanoseconds.

    Buckets of several queries can be added, so percentiles of a class are as accurate as those of a query (9
    %).
    """

    count: int = 0
    total: int = 0
    maximum: int = 0
    buckets: Mapping[int, int] = field(default_factory=dict)
    """Answers by bucket: bucket `b` ends at 2 ** ((b + 1) / 8) ns; empty buckets are left out."""

    def __reduce__(self) -> tuple[type[Latency], tuple[object, ...]]:
        # Several times faster than the default of a dataclass.
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
        """Return the latency of the answers counted since an earlier state of the same metrics."""
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
        """The mean in milliseconds, or None without answers."""
        return self.total / self.count / _MS if self.count else None

    @property
    def max_ms(self) -> float | None:
        """The maximum in milliseconds, or None without answers."""
        return self.maximum / _MS if self.count else None

    def percentile_ms(self, percent: float) -> float | None:
        """Return a percentile in milliseconds, or None without answers."""
        if not self.count:
            return None
        rank, seen = max(1, ceil(self.count * percent / 100)), 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= rank:
                return min(_end(bucket), self.maximum) / _MS
        return self.maximum / _MS

    def summary(self) -> dict[str, float | None]:
        """Return mean, p50, p95, p99 and max in milliseconds, and the number of answers."""
        percentiles = {f"p{percent}": self.percentile_ms(percent) for percent in (50, 95, 99)}
        return {"count": self.count, "mean": self.mean_ms, **percentiles, "max": self.max_ms}

    def at_most(self, bounds_s: Sequence[float]) -> list[int]:
        """Return the number of answers within each bound (seconds), as in a Prometheus histogram."""
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
    """Metrics of an operator of a running query."""

    name: str
    """Name of the plan's node, or `#output`."""
    operator: str
    """Type of the operator: `source`, `select`, ..., `output`."""
    kind: str
    """`source`, `operational` or `output`."""
    state: str
    queued: int
    """Rows queued at its inputs; for a source, the unread rows of the log."""
    queued_bytes: int
    state_bytes: int
    cost_per_tuple_ns: float
    selectivity: float
    tuples: int
    """Rows measured so far; at 0, cost and selectivity are defaults."""
    rows_out: int
    counters: dict[str, int]
    sharers: int = 1
    """Number of queries that the operator runs for; more than one in a shared prefix."""
    shared_with: tuple[str, ...] = ()
    """Ids of some of the other queries that it runs for."""
    tuple_bytes: float = 64.0
    """Mean size of an output row, in bytes."""
    input_bytes: float = 64.0
    """Mean size of an input row that comes from a source, in bytes."""


class CheckpointMetrics(NamedTuple):
    """The last checkpoint of a query, and its last recovery."""

    taken_us: int | None
    """When the last checkpoint was taken (UTC); None if there is none."""
    nbytes: int
    duration_us: int | None
    """How long writing it took; None for one that an earlier engine process wrote."""
    replayed_rows: int
    """Results that were computed again, and not stored again, at the last recovery."""
    replaying: bool
    """Whether results from before the recovery are still being computed again."""
    error: str | None
    """Why the last attempt to write a checkpoint failed; None if it succeeded."""
    failures: int = 0
    """Attempts that failed since the engine started."""

    def age_s(self, now_us: int) -> float | None:
        """Return the seconds since the last checkpoint was taken, by the wall clock; None without one."""
        return None if self.taken_us is None else max(now_us - self.taken_us, 0) / 1e6


class ConsumerLag(NamedTuple):
    """How far a query is behind the end of a stream."""

    rows: int
    """Rows that it has not read."""
    waited_ns: int
    """How long the oldest of them has been waiting; 0 if there are none."""


class QueryMetrics(NamedTuple):
    """Metrics of a query, as reported by its engine; an ended query retains its sums and holds no memory."""

    id: str
    state: str
    reason: str | None
    class_name: str
    epoch: int
    offset: int
    """Offset of the next answer in the result log."""
    rows_in: int
    """Rows read from its streams, counted once per source."""
    rows_out: int
    """Answers since the query started."""
    queued_bytes: int
    state_bytes: int
    backlog_bytes: int
    latency: Latency
    counters: dict[str, dict[str, int]]
    positions: dict[str, int]
    """Lowest position still needed, by stream; empty while the query is paused or when it has ended."""
    operators: tuple[OperatorMetrics, ...]
    """The operators of the running plan."""
    shedding_intervals: tuple[SheddingInterval, ...] = ()
    """Shedding intervals, oldest first: the last 32 of each source."""
    plan_version: int = 0
    """Version of the running plan: 0 for the initial one, else the number given with the migration."""
    plan_migrations: int = 0
    """Number of migrations to another plan since the query started."""
    migration: str | None = None
    """Phase of the migration under way: `draining`, `warming` or `leaving`; None without one."""
    migration_note: str | None = None
    """Why the last migration was abandoned, if it was."""
    checkpoint: CheckpointMetrics | None = None
    """The last checkpoint; None if the query has none."""
    lags: Mapping[str, ConsumerLag] = {}
    """Lag by stream; empty while the query is paused or when it has ended."""


class TargetMetrics(NamedTuple):
    """Metrics that QoS targets are judged by: a subset of the query's metrics that is cheaper to send."""

    epoch: int
    rows_in: int
    queued_bytes: int
    state_bytes: int
    backlog_bytes: int
    latency: Latency
    shed: int
    """Rows shed so far."""
    share: float
    """Share of rows that is being shed."""
    weight: int
    """Weight of the query in its class."""


class TargetMetricsReply(NamedTuple):
    """Target metrics of running queries, by id."""

    queries: dict[str, TargetMetrics]


class ClassMetrics(NamedTuple):
    """Metrics of the queries of a class, summed."""

    queries: int
    rows_in: int
    rows_out: int
    queued_bytes: int
    state_bytes: int
    backlog_bytes: int
    latency: Latency


class ClassMetricsReply(NamedTuple):
    """Metrics of all classes that have queries, by name."""

    classes: dict[str, ClassMetrics]


class EngineMetrics(NamedTuple):
    """Metrics of the engine process as a whole."""

    pid: int
    policy: str
    uptime_ns: int
    busy_ns: int
    """Time spent in slices."""
    class_busy_ns: dict[str, int]
    """Time spent in slices, by class."""
    slices: int
    ids: tuple[str, ...]
    """Ids of all queries that the engine knows, ended ones included."""
    cpu_ns: int
    """CPU time of the process, user and system."""
    resident_bytes: int
    slice_p99_ns: int = 0
    """A time that 99 % of the slices did not exceed, at most twice too long."""
    longest_slice_ns: int = 0


class EngineReport(NamedTuple):
    """Metrics of the engine and its queries, taken at about the same time."""

    engine: EngineMetrics
    queries: dict[str, QueryMetrics]
