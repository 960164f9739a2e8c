"""Measurement interval: metrics of the time in which a policy was active."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mavstream_protocol.specification import Metric
from mavstream_server.scheduling.view import OperatorView, QueryView, Report

Sample = Mapping[Metric, float]
"""Metrics of one interval; a metric that could not be measured is missing."""


class Interval:
    """Accumulates the reports of slices, and reads the queues once, at the end of the interval."""

    __slots__ = ("_answers", "_consumed", "_response", "since")

    def __init__(self, since: int) -> None:
        self.since = since
        self._consumed = self._answers = self._response = 0

    def add(self, report: Report) -> None:
        """Add the report of a slice."""
        self._consumed += report.consumed
        self._answers += report.answers
        self._response += report.response

    def measure(self, metrics: Iterable[Metric], queries: Iterable[QueryView], now: int) -> Sample | None:
        """Return the metrics at the end of the interval, or None if there was no work in it."""
        waiting = [operator for query in queries for operator in query.operators if operator.ready]
        if not self._consumed and not waiting:
            return None
        values = {metric: self._value(metric, waiting, now) for metric in metrics}
        return {metric: value for metric, value in values.items() if value is not None}

    def _value(self, metric: Metric, waiting: Sequence[OperatorView], now: int) -> float | None:
        match metric:
            case Metric.OUTPUT_RATE:
                return self._answers * 1e9 / (now - self.since)
            case Metric.QUEUED_TUPLES:
                return sum(operator.queued for operator in waiting)
            case Metric.QUEUED_BYTES:
                return sum(operator.queued_bytes for operator in waiting)
            case Metric.PENDING_ANSWERS:
                return sum(o.queued * o.query.units.fragments[o.number].answers for o in waiting)
            case Metric.DELAY:
                if self._answers:
                    return self._response / self._answers
                arrivals = [oldest for operator in waiting if (oldest := operator.oldest) is not None]
                return now - min(arrivals) if arrivals else None
