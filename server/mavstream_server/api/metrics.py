"""Prometheus metrics of the API process and the engine, collected per scrape."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from mavstream_protocol.wire.resources import TableInfo
from mavstream_server.core.metrics import ClassMetrics, EngineReport, Latency, QueryMetrics
from mavstream_server.ingest.traffic import Traffic
from mavstream_server.optimizer.fairness import ClassFairness
from mavstream_server.optimizer.service import OptimizerService

LATENCY_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds of the latency histogram, in seconds."""

_QUERY = ("query", "class")
_OPERATOR = ("query", "class", "operator")
_STREAM = ("query", "class", "stream")
_TARGET = ("query", "class", "objective")


@dataclass(frozen=True, slots=True)
class ServerMetrics:
    """All exported metrics, taken at one time."""

    traffic: Traffic
    stream_bytes: dict[str, int]
    stream_positions: dict[str, int]
    overloaded_streams: dict[str, int]
    """1 for streams whose producers get no credit, because rows arrive faster than they are read; else 0."""
    tables: Sequence[TableInfo]
    clock_ahead: int
    """How far arrival times are ahead of the wall clock, in ns."""
    damaged: dict[str, int]
    """Damages in files, by stream, query or table."""
    lost_rows: dict[str, int]
    """Rows lost by damage, by stream, query or table."""
    states: dict[str, int]
    """Number of queries by actual state."""
    connections: int
    producers: int
    subscribers: int
    engine_up: bool
    engine_restarts: int
    engine: EngineReport | None
    """None while there is no engine."""
    classes: Mapping[str, ClassMetrics]
    """Metrics of classes that have queries; empty while there is no engine."""
    fairness: dict[str, ClassFairness]
    """Fairness metrics of all classes."""
    optimizer: OptimizerService


def render(metrics: ServerMetrics) -> bytes:
    """Return the metrics in the Prometheus text format."""
    registry = CollectorRegistry()
    registry.register(_MetricsCollector(metrics))
    return generate_latest(registry)


class _MetricsCollector(Collector):
    def __init__(self, metrics: ServerMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        yield from _server(self._metrics)
        yield from _optimizer(self._metrics.optimizer)
        if self._metrics.engine is not None:
            yield from _engine(self._metrics.engine)
            yield from _classes(self._metrics.classes)
            yield from _fairness(self._metrics.fairness)
            queries = list(self._metrics.engine.queries.values())
            yield from _queries(queries)
            yield from _checkpoints(queries, time.time_ns() // 1000)
            yield from _lags(queries)
            yield from _operators(queries)
            yield from _latencies(queries)


def _server(metrics: ServerMetrics) -> Iterator[Metric]:
    traffic = metrics.traffic
    for name, counts, text in (
        ("tuples_in", traffic.received, "Rows sent by producers"),
        ("tuples_acked", traffic.acked, "Rows appended to the log and acknowledged"),
        ("tuples_rejected", traffic.rejected, "Rows of rejected frames"),
        ("tuples_repeated", traffic.repeated, "Repeated frames, already in the log"),
    ):
        yield _counter(name, text, ("stream",), (((stream,), count) for stream, count in counts.items()))
    yield _gauge("stream_bytes", "Bytes of a stream on disk", ("stream",), _keyed(metrics.stream_bytes))
    yield _gauge(
        "stream_position",
        "Position of the next row of a stream",
        ("stream",),
        _keyed(metrics.stream_positions),
    )
    yield _gauge(
        "stream_overloaded",
        "Whether a stream's producers get no credit because rows arrive faster than they are read",
        ("stream",),
        _keyed(metrics.overloaded_streams),
    )
    yield from _tables(metrics.tables)
    yield _gauge(
        "clock_ahead_seconds",
        "How far arrival times are ahead of the clock",
        (),
        [((), metrics.clock_ahead / 1e9)],
    )
    yield _counter("damage", "Damages found in files", ("directory",), _keyed(metrics.damaged))
    yield _counter("damaged_rows", "Rows lost by damage in files", ("directory",), _keyed(metrics.lost_rows))
    yield _gauge("queries", "Queries by state", ("state",), _keyed(metrics.states))
    yield _gauge("connections", "Open requests and websockets", (), [((), metrics.connections)])
    yield _gauge("producers", "Connected producers", (), [((), metrics.producers)])
    yield _gauge("subscribers", "Subscribers of results", (), [((), metrics.subscribers)])
    yield _gauge("engine_up", "1 while the engine accepts commands", (), [((), int(metrics.engine_up))])
    yield _counter(
        "engine_restarts", "Restarts of the engine after it died", (), [((), metrics.engine_restarts)]
    )


def _tables(tables: Sequence[TableInfo]) -> Iterator[Metric]:
    for name, text in (
        ("rows", "Rows of a table's current version"),
        ("bytes", "Bytes of a table's versions on disk"),
        ("versions", "Retained versions of a table"),
    ):
        each = (((table.name,), getattr(table, name)) for table in tables)
        yield _gauge(f"table_{name}", text, ("table",), each)


def _optimizer(optimizing: OptimizerService) -> Iterator[Metric]:
    queries = optimizing.monitor.queries
    statuses = [
        ((id_, watched.query.class_name, objective.value), status)
        for id_, watched in queries.items()
        for objective, status in watched.statuses.items()
    ]
    yield _counter(
        "optimizer_decisions",
        "Decisions that have ended, by rule and outcome",
        ("rule", "outcome"),
        (((rule, outcome.value), n) for (rule, outcome), n in optimizing.optimizer.journal.outcomes.items()),
    )
    yield _gauge(
        "query_target_state",
        "1 for the current state of a target: kept, at risk, missed or unknown",
        (*_TARGET, "state"),
        (((*labels, status.state.value), 1) for labels, status in statuses),
    )
    yield _gauge(
        "query_target_ratio",
        "Measured value divided by target, inverted where more is better; up to 1 is met",
        _TARGET,
        ((labels, status.ratio) for labels, status in statuses if status.ratio is not None),
    )
    shares = optimizing.enactor.shares
    yield _gauge(
        "query_shed_share",
        "Share of a query's rows that is being shed",
        _QUERY,
        (((id_, queries[id_].query.class_name), share) for id_, share in shares.items() if id_ in queries),
    )


def _engine(stats: EngineReport) -> Iterator[Metric]:
    engine = stats.engine
    yield _counter("engine_busy_seconds", "Time spent in slices", (), [((), engine.busy_ns / 1e9)])
    busy = (((name,), spent / 1e9) for name, spent in engine.class_busy_ns.items())
    yield _counter("class_busy_seconds", "Time spent in slices of a class", ("class",), busy)
    yield _counter("engine_cpu_seconds", "CPU time of the engine process", (), [((), engine.cpu_ns / 1e9)])
    yield _counter("engine_slices", "Slices run", ("policy",), [((engine.policy,), engine.slices)])
    times = [(("0.99",), engine.slice_p99_ns / 1e9), (("1",), engine.longest_slice_ns / 1e9)]
    yield _gauge("engine_slice_seconds", "Time between two decisions of the policy", ("quantile",), times)
    yield _gauge("engine_resident_bytes", "Resident memory of the engine", (), [((), engine.resident_bytes)])


def _classes(classes: Mapping[str, ClassMetrics]) -> Iterator[Metric]:
    for name, text in (
        ("queued_bytes", "Bytes queued between operators of a class; shared operators count once"),
        ("state_bytes", "Bytes of operator state of a class; shared operators count once"),
        ("backlog_bytes", "Unread bytes in the logs at the cursors of a class; shared cursors count once"),
    ):
        yield _gauge(
            f"class_{name}", text, ("class",), (((key,), getattr(one, name)) for key, one in classes.items())
        )


def _fairness(classes: dict[str, ClassFairness]) -> Iterator[Metric]:
    ratios = (
        ((name, one.next_class or ""), one.inversion_ratio)
        for name, one in classes.items()
        if one.inversion_ratio is not None
    )
    yield _gauge(
        "class_inversion_ratio",
        "Response time relative to the next less important class; above 1 is an inversion",
        ("class", "next_class"),
        ratios,
    )
    starved = (((name,), int(one.starved)) for name, one in classes.items())
    yield _gauge("class_starved", "1 while rows wait and the class gets no turn", ("class",), starved)


def _queries(queries: list[QueryMetrics]) -> Iterator[Metric]:
    def each(name: str) -> Iterator[tuple[tuple[str, ...], float]]:
        return (((query.id, query.class_name), getattr(query, name)) for query in queries)

    yield _counter("rows_read", "Rows read by a query from its streams", _QUERY, each("rows_in"))
    yield _counter("results", "Result rows of a query", _QUERY, each("rows_out"))
    yield _gauge(
        "queued_bytes", "Bytes queued between operators, including shared ones", _QUERY, each("queued_bytes")
    )
    yield _gauge(
        "state_bytes", "Bytes of operator state, including shared operators", _QUERY, each("state_bytes")
    )
    yield _gauge(
        "backlog_bytes", "Unread bytes in the logs, including shared cursors", _QUERY, each("backlog_bytes")
    )


def _checkpoints(queries: list[QueryMetrics], now_us: int) -> Iterator[Metric]:
    """Return the metrics of queries that have checkpoints; `now_us` is the wall clock's time."""
    each = [
        ((query.id, query.class_name), query.checkpoint) for query in queries if query.checkpoint is not None
    ]
    taken = [(labels, one) for labels, one in each if one.taken_us is not None]
    yield _gauge(
        "checkpoint_age_seconds",
        "Time since the last checkpoint; queries that do not change get no new one",
        _QUERY,
        ((labels, age) for labels, one in taken if (age := one.age_s(now_us)) is not None),
    )
    yield _gauge(
        "checkpoint_bytes",
        "Size of the last checkpoint",
        _QUERY,
        ((labels, one.nbytes) for labels, one in taken),
    )
    yield _gauge(
        "checkpoint_duration_seconds",
        "Time that writing the last checkpoint took",
        _QUERY,
        ((labels, one.duration_us / 1e6) for labels, one in taken if one.duration_us is not None),
    )
    yield _counter(
        "checkpoint_failures",
        "Checkpoints that could not be written",
        _QUERY,
        ((labels, one.failures) for labels, one in each),
    )
    yield _gauge(
        "replayed_rows",
        "Results that were computed again at the last recovery",
        _QUERY,
        ((labels, one.replayed_rows) for labels, one in each),
    )


def _lags(queries: list[QueryMetrics]) -> Iterator[Metric]:
    each = [
        ((query.id, query.class_name, stream), lag) for query in queries for stream, lag in query.lags.items()
    ]
    yield _gauge(
        "consumer_lag_rows",
        "Rows of a stream that a query has not read",
        _STREAM,
        ((labels, lag.rows) for labels, lag in each),
    )
    yield _gauge(
        "consumer_lag_seconds",
        "How long the oldest row that a query has not read has been waiting",
        _STREAM,
        ((labels, lag.waited_ns / 1e9) for labels, lag in each),
    )


def _operators(queries: list[QueryMetrics]) -> Iterator[Metric]:
    each = [
        ((query.id, query.class_name, operator.name), operator)
        for query in queries
        for operator in query.operators
    ]
    yield _gauge(
        "operator_queued_rows", "Rows queued at the inputs", _OPERATOR, ((k, o.queued) for k, o in each)
    )
    yield _gauge(
        "operator_queued_bytes",
        "Bytes queued at the inputs",
        _OPERATOR,
        ((k, o.queued_bytes) for k, o in each),
    )
    yield _counter("operator_rows_out", "Rows emitted", _OPERATOR, ((k, o.rows_out) for k, o in each))
    yield _gauge(
        "operator_cost_seconds",
        "Measured time per row",
        _OPERATOR,
        ((k, o.cost_per_tuple_ns / 1e9) for k, o in each),
    )
    yield _gauge(
        "operator_selectivity", "Rows out per row in", _OPERATOR, ((k, o.selectivity) for k, o in each)
    )
    yield _counter(
        "rows_left_out",
        "Rows not reflected in the results, by reason: late, missed, errors, ...",
        (*_OPERATOR, "reason"),
        (
            ((query.id, query.class_name, operator, reason), count)
            for query in queries
            for operator, reasons in query.counters.items()
            for reason, count in reasons.items()
        ),
    )


def _latencies(queries: list[QueryMetrics]) -> Iterator[Metric]:
    classes: dict[str, list[Latency]] = defaultdict(list)
    by_query = HistogramMetricFamily(
        "mavstream_latency_seconds", "Time from arrival to result", labels=_QUERY
    )
    for query in queries:
        _add_histogram(by_query, (query.id, query.class_name), query.latency)
        classes[query.class_name].append(query.latency)
    yield by_query
    by_class = HistogramMetricFamily(
        "mavstream_class_latency_seconds",
        "Time from arrival to result, over all queries of a class",
        labels=("class",),
    )
    for name, parts in classes.items():
        _add_histogram(by_class, (name,), Latency.merged(parts))
    yield by_class


def _add_histogram(family: HistogramMetricFamily, labels: tuple[str, ...], latency: Latency) -> None:
    buckets = list(zip(map(str, LATENCY_BOUNDS), latency.at_most(LATENCY_BOUNDS), strict=True))
    family.add_metric(labels, [*buckets, ("+Inf", latency.count)], sum_value=latency.total / 1e9)


def _keyed(values: dict[str, int]) -> Iterator[tuple[tuple[str, ...], float]]:
    return (((key,), value) for key, value in values.items())


def _counter(
    name: str, text: str, labels: tuple[str, ...], samples: Iterable[tuple[tuple[str, ...], float]]
) -> Metric:
    family = CounterMetricFamily(f"mavstream_{name}", text, labels=labels)
    for values, count in samples:
        family.add_metric(values, count)
    return family


def _gauge(
    name: str, text: str, labels: tuple[str, ...], samples: Iterable[tuple[tuple[str, ...], float]]
) -> Metric:
    family = GaugeMetricFamily(f"mavstream_{name}", text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family
