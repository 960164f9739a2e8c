"""QoS reports: targets of a query, measured values, target status and the optimizer's actions."""

from __future__ import annotations

from collections import OrderedDict

from mavstream_protocol.instants import format_instant
from mavstream_protocol.wire.optimizer import DecisionInfo
from mavstream_protocol.wire.qos import QosReport, ShedReport, ShedSpell, StateChange, TargetReport
from mavstream_protocol.wire.resources import LatencySummary
from mavstream_server.core.metrics import QueryMetrics
from mavstream_server.optimizer.monitor import WINDOW_S, Observed, Watched, is_watched
from mavstream_server.optimizer.service import OptimizerService
from mavstream_server.optimizer.sliding_metrics import SlidingMetrics, sample
from mavstream_server.optimizer.target_status import PATIENCE, TargetStatus
from mavstream_server.optimizer.views import decision_info
from mavstream_server.queries.query import Query
from mavstream_server.queries.views.metrics import memory

# Over less time, a rate depends on how rows are batched into frames rather than on their number.
_MIN_INTERVAL_S = 1.0
_MAX_REPORTS = 1000  # queries without targets whose last report is stored
_ACTIONS = 20


class QosReports:
    """Creates reports: from the monitor for queries with targets, from the previous report for others."""

    def __init__(self, optimizing: OptimizerService) -> None:
        self._optimizing = optimizing
        self._known: OrderedDict[str, tuple[float, SlidingMetrics]] = OrderedDict()

    def report(self, query: Query, stats: QueryMetrics | None) -> QosReport:
        """Report on a query with its current metrics, None if the engine does not run it."""
        current = stats if stats is not None and stats.epoch == query.epoch else None
        watched = self._watched(query)
        metrics = self._since_last_report(query.id, current) if watched is None else watched.metrics
        sliding = current is not None and watched is not None and not metrics.empty
        latency = None
        if current is not None:
            latency = metrics.latency if sliding else current.latency
        return QosReport(
            query=query.id,
            epoch=query.epoch,
            window_s=WINDOW_S,
            targets=() if watched is None else self._targets(watched),
            latency_ms=None if latency is None else LatencySummary.model_validate(latency.summary()),
            memory_bytes={} if current is None else memory(current),
            rows_per_s=None if current is None else metrics.rows_per_s,
            results=0 if current is None else current.rows_out,
            shed=self._shed(query.id, current),
            actions=self._actions(query.id),
        )

    def _watched(self, query: Query) -> Watched | None:
        """Return the status of a query's targets, unknown while they are new; None without targets."""
        spec = query.record.spec
        known = self._optimizing.monitor.queries.get(query.id)
        if known is not None and known.query.qos == spec.qos:
            return known
        if not is_watched(spec.qos):
            return None
        new = Watched(Observed(query.id, spec.class_, 1, spec.qos, None), WINDOW_S, PATIENCE)
        new.observe(new.query, self._optimizing.now)
        return new

    def _since_last_report(self, id_: str, stats: QueryMetrics | None) -> SlidingMetrics:
        now = self._optimizing.now
        last, metrics = self._known.pop(id_, (now - _MIN_INTERVAL_S, SlidingMetrics(_MIN_INTERVAL_S)))
        if stats is not None and now - last >= _MIN_INTERVAL_S:
            last = now
            metrics.add(sample(now, stats))
        self._known[id_] = last, metrics
        if len(self._known) > _MAX_REPORTS:
            self._known.popitem(last=False)
        return metrics

    def _targets(self, watched: Watched) -> tuple[TargetReport, ...]:
        return tuple(
            TargetReport(
                objective=objective,
                statistic=target.statistic,
                target=target.target,
                tolerance=target.tolerance,
                weight=target.weight,
                measured=target.measured,
                state=watched.statuses[objective].state,
                since=self._instant(watched.statuses[objective].since),
                history=self._history(watched.statuses[objective]),
            )
            for objective, target in watched.targets.items()
        )

    def _history(self, status: TargetStatus) -> tuple[StateChange, ...]:
        instant = self._optimizing.instant
        return tuple(
            StateChange(at=instant(one.at), before=one.before, after=one.after, measured=one.measured)
            for one in status.changes
        )

    def _shed(self, id_: str, stats: QueryMetrics | None) -> ShedReport:
        counters, intervals = ({}, ()) if stats is None else (stats.counters, stats.shedding_intervals)
        return ShedReport(
            rows=sum(reasons.get("shed", 0) for reasons in counters.values()),
            share=self._optimizing.enactor.shares.get(id_, 0.0),
            spells=tuple(
                ShedSpell(
                    stream=interval.stream,
                    share=interval.share,
                    since=format_instant(interval.since // 1000),
                    until=format_instant(interval.until // 1000),
                    seen=interval.seen,
                    rows=interval.shed,
                )
                for interval in intervals
            ),
        )

    def _actions(self, id_: str) -> tuple[DecisionInfo, ...]:
        journal = self._optimizing.optimizer.journal
        return tuple(decision_info(self._optimizing, one) for one in journal.of(id_)[-_ACTIONS:])

    def _instant(self, at: float | None) -> str | None:
        return None if at is None else self._optimizing.instant(at)
