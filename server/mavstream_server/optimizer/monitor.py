"""Monitor: compares the targets of all queries with what was measured over the last seconds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from mavstream_protocol.optimizer import Objective as Objective
from mavstream_protocol.qos import QosSpec
from mavstream_server.optimizer.sliding_metrics import Measured, SlidingMetrics, sample
from mavstream_server.optimizer.target_status import PATIENCE, TargetState, TargetStatus

WINDOW_S = 10.0
"""Length of the sliding window, in seconds: a slow query gives some hundred answers in it."""

_SAFE_RATIO = 0.5  # up to this share of its targets, a query is unlikely to miss one soon


class Observed(NamedTuple):
    """A query with its targets and its latest metrics."""

    id: str
    class_name: str
    priority: int
    qos: QosSpec
    metrics: Measured | None
    """None while the engine does not run the query."""


class Target(NamedTuple):
    """A target and its measured value."""

    objective: Objective
    statistic: str
    """The statistic that is compared: `mean`, `p95`, ..., `bytes`, `rows_per_s`."""
    target: float
    """Target value in milliseconds, bytes or rows per second."""
    tolerance: float
    measured: float | None
    ratio: float | None
    """Measured value relative to the target, inverted where more is better: up to 1 is met."""
    weight: float = 1.0
    """Weight among the targets of the query, 1 on average."""
    foreseen: bool = False
    """Whether the target is not missed yet and `ratio` is an extrapolation of its current growth."""

    @property
    def severity(self) -> float:
        """Weighted excess relative to the target; 0 while unknown."""
        return 0.0 if self.ratio is None else self.weight * (self.ratio - 1)

    def describe(self, query: Observed) -> str:
        """Describe the target and its measured value."""
        measured = "unknown" if self.measured is None else f"{self.measured:.4g}"
        return (
            f"{self.objective} of query {query.id} in class {query.class_name}: "
            f"{self.statistic} is {measured}, the target is {self.target:.4g}"
            + (" and is predicted to be missed" if self.foreseen else "")
            + ("" if self.weight == 1 else f", with weight {self.weight:.4g}")
        )


class Watched:
    """A monitored query with its sliding metrics and the status of its targets."""

    def __init__(self, query: Observed, seconds: float, patience: int) -> None:
        self.query = query
        self.metrics = SlidingMetrics(seconds)
        self.statuses: dict[Objective, TargetStatus] = {}
        self.targets: dict[Objective, Target] = {}
        self._patience = patience

    def observe(self, query: Observed, now: float) -> None:
        """Add the latest metrics and judge every target."""
        self.query = query
        if query.metrics is not None:
            self.metrics.add(sample(now, query.metrics))
        self.targets = {one.objective: one for one in _targets(query, self.metrics)}
        self.statuses = {
            objective: self.statuses.get(objective) or self._new_status(objective)
            for objective in self.targets
        }
        for objective, target in self.targets.items():
            self.statuses[objective].judge(target.ratio, target.tolerance, target.measured, now)

    def _new_status(self, objective: Objective) -> TargetStatus:
        # Latency only: memory grows while windows fill, and stops by itself.
        return TargetStatus(self._patience, foresees=objective is Objective.LATENCY)

    @property
    def safe(self) -> bool:
        """Whether all targets are met by a wide margin."""
        return not self.metrics.empty and all(
            status.state is TargetState.KEPT and status.ratio is not None and status.ratio <= _SAFE_RATIO
            for status in self.statuses.values()
        )

    @property
    def missed(self) -> Iterator[Target]:
        """The missed targets."""
        return (target for target in self.pressing if not target.foreseen)

    @property
    def pressing(self) -> Iterator[Target]:
        """The targets that are missed, or soon will be; those of weight 0 are left out."""
        for objective, status in self.statuses.items():
            target = self.targets[objective]
            if not target.weight:
                continue
            if status.state is TargetState.MISSED:
                yield target
            elif (ratio := status.foreseen) is not None:
                yield target._replace(ratio=ratio, foreseen=True)


class Monitor:
    """Monitors the queries that have targets."""

    def __init__(self, seconds: float = WINDOW_S, patience: int = PATIENCE) -> None:
        self._seconds = seconds
        self._patience = patience
        self.queries: dict[str, Watched] = {}

    def observe(self, queries: Iterable[Observed], now: float) -> None:
        """Add the latest metrics of queries."""
        for query in queries:
            watched = self.queries.get(query.id)
            if watched is None:
                watched = self.queries[query.id] = Watched(query, self._seconds, self._patience)
            watched.observe(query, now)

    def forget(self, present: Collection[str]) -> None:
        """Drop all queries except those in `present`."""
        for absent in [id_ for id_ in self.queries if id_ not in present]:
            del self.queries[absent]

    @property
    def distress(self) -> float:
        """Total distress over all classes; see `distress_from`."""
        return self.distress_from(0)

    def distress_from(self, priority: int) -> float:
        """Return the sum of severity times priority over missed targets of at least this priority."""
        return sum(
            watched.query.priority * target.severity
            for watched in self.queries.values()
            if watched.query.priority >= priority
            for target in watched.pressing
        )

    def growth_from(self, priority: int) -> float:
        """Return the growth per second of `distress_from`."""
        return sum(
            watched.query.priority * target.weight * watched.statuses[target.objective].growth
            for watched in self.queries.values()
            if watched.query.priority >= priority
            for target in watched.pressing
        )

    def missed(self) -> list[tuple[Watched, Target]]:
        """Return the missed targets, by priority of the class and then by severity, highest first."""
        return [one for one in self.pressing() if not one[1].foreseen]

    def pressing(self) -> list[tuple[Watched, Target]]:
        """Return the targets that are missed or soon will be, in the same order."""
        found = [(watched, target) for watched in self.queries.values() for target in watched.pressing]
        return sorted(found, key=lambda one: (-one[0].query.priority, -one[1].severity, one[0].query.id))


def _targets(query: Observed, metrics: SlidingMetrics) -> Iterator[Target]:
    qos, running, weights = query.qos, query.metrics is not None, query.qos.target_weights
    if qos.latency is not None:
        limit = qos.latency.at_most / 1000
        measured = _latency(metrics, qos.latency.percentile) if running else None
        ratio = None if measured is None else measured / limit
        yield Target(
            Objective.LATENCY,
            qos.latency.statistic,
            limit,
            qos.latency.tolerance,
            measured,
            ratio,
            weights["latency"],
        )
    if qos.memory is not None:
        held = metrics.held if running else None
        ratio = None if held is None else held / qos.memory.at_most
        yield Target(
            Objective.MEMORY,
            "bytes",
            qos.memory.at_most,
            qos.memory.tolerance,
            held,
            ratio,
            weights["memory"],
        )
    if qos.throughput is not None:
        least, tolerance = qos.throughput.at_least, qos.throughput.tolerance
        rate = metrics.rows_per_s if running else None
        yield Target(
            Objective.THROUGHPUT,
            "rows_per_s",
            least,
            tolerance,
            rate,
            _shortfall(metrics, rate, least),
            weights["throughput"],
        )


def _latency(metrics: SlidingMetrics, percentile: float | None) -> float | None:
    """Return the latency statistic in ms; while rows wait without answers, at least the time of that wait."""
    latency = metrics.latency
    known = latency.mean_ms if percentile is None else latency.percentile_ms(percentile)
    silent = metrics.silent_ms
    return silent if known is None else known if silent is None else max(known, silent)


def _shortfall(metrics: SlidingMetrics, rate: float | None, least: float) -> float | None:
    """Return target rate over measured rate; 1 at most while no rows wait to be read."""
    if rate is None:
        return None
    if not metrics.waiting:
        return min(1.0, least / rate) if rate else 1.0
    # A query that makes no progress gets a large but finite ratio.
    return least / max(rate, least / 1000)


def is_watched(qos: QosSpec) -> bool:
    """Whether a query is monitored: it has a target, or allows shedding for the sake of others."""
    return bool(qos.latency or qos.memory or qos.throughput or qos.max_loss)


def by_class(queries: Mapping[str, Watched]) -> dict[str, list[Watched]]:
    """Group queries by class."""
    found: dict[str, list[Watched]] = {}
    for watched in queries.values():
        found.setdefault(watched.query.class_name, []).append(watched)
    return found
