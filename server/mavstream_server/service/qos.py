"""Quality of service: what was asked of a query, what is measured, and whether the one keeps the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from mavstream_protocol.instants import format_instant
from mavstream_protocol.qos import QosSpec
from mavstream_protocol.wire.resources import LatencySummary
from mavstream_server.engine.figures import QueryStats
from mavstream_server.service.measurements import latency_summary, memory
from mavstream_server.service.query import Query

_CONFIG = ConfigDict(frozen=True, use_attribute_docstrings=True)
# A rate over less says more about how rows are cut into frames than about how many there are.
_SHORTEST_S = 1.0


class TargetState(StrEnum):
    """How a target stands."""

    KEPT = "kept"
    MISSED = "missed"
    UNKNOWN = "unknown"
    """Nothing was measured yet, or the query does not run."""


class TargetReport(BaseModel):
    """One target of a query."""

    model_config = _CONFIG
    objective: str
    """latency, memory or throughput."""
    statistic: str
    """What is compared: `mean`, `p95`, ..., `bytes`, `rows_per_s`."""
    target: float
    """Milliseconds, bytes or rows per second."""
    tolerance: float
    """The share of the target that it may be missed by and still counts as kept."""
    measured: float | None
    """In the unit of the target."""
    state: TargetState
    since: str | None
    """Since when reports have found this state; null while it is unknown."""


class QosReport(BaseModel):
    """The targets of a query and what is measured."""

    model_config = ConfigDict(
        **_CONFIG,
        json_schema_extra={
            "examples": [
                {
                    "query": "hot_homes-k3xv7q",
                    "epoch": 1,
                    "targets": [
                        {
                            "objective": "latency",
                            "statistic": "p95",
                            "target": 50.0,
                            "tolerance": 0.1,
                            "measured": 3.2,
                            "state": "kept",
                            "since": "2026-01-01T12:00:00.000000Z",
                        }
                    ],
                    "latency_ms": {"count": 9, "mean": 2.1, "p50": 1.9, "p95": 3.2, "p99": 3.4, "max": 3.4},
                    "memory_bytes": {"queued": 0, "state": 4096, "backlog": 0},
                    "rows_per_s": 1200.0,
                    "results": 9,
                }
            ]
        },
    )
    query: str
    epoch: int
    targets: tuple[TargetReport, ...]
    """Empty where none were asked for."""
    latency_ms: LatencySummary | None
    """Since the query was last instantiated; null while it is not in the engine."""
    memory_bytes: dict[str, int]
    """queued, state, backlog."""
    rows_per_s: float | None
    """Rows read since the report before this one, at least a second ago; null until there are two."""
    results: int
    """Answers since the query was last instantiated."""


class _Verdict(NamedTuple):
    objective: str
    statistic: str
    target: float
    tolerance: float
    measured: float | None
    kept: bool


class _Sample(NamedTuple):
    at: float
    epoch: int
    rows: int
    rate: float | None


class QosWatch:
    """Makes reports, and remembers since when targets are kept or missed."""

    def __init__(
        self,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now_us = now_us
        self._monotonic = monotonic
        self._samples: dict[str, _Sample] = {}
        self._since: dict[str, dict[str, tuple[TargetState, int]]] = {}

    def report(self, query: Query, stats: QueryStats | None) -> QosReport:
        """Compare the targets of a query with its figures; None if the engine does not have it."""
        current = stats if stats is not None and stats.epoch == query.epoch else None
        rate = None if current is None else self._rate(current)
        verdicts = _verdicts(query.record.spec.qos, current, rate)
        return QosReport(
            query=query.id,
            epoch=query.epoch,
            targets=tuple(self._told(query.id, verdict) for verdict in verdicts),
            latency_ms=None if current is None else latency_summary(current),
            memory_bytes={} if current is None else memory(current),
            rows_per_s=rate,
            results=0 if current is None else current.rows_out,
        )

    def forget(self, id_: str) -> None:
        """Drop what is known of a query that is gone."""
        self._samples.pop(id_, None)
        self._since.pop(id_, None)

    def _rate(self, stats: QueryStats) -> float | None:
        now, last = self._monotonic(), self._samples.get(stats.id)
        if last is None or last.epoch != stats.epoch:
            self._samples[stats.id] = _Sample(now, stats.epoch, stats.rows_in, None)
            return None
        if now - last.at < _SHORTEST_S:
            return last.rate
        rate = (stats.rows_in - last.rows) / (now - last.at)
        self._samples[stats.id] = _Sample(now, stats.epoch, stats.rows_in, rate)
        return rate

    def _told(self, id_: str, verdict: _Verdict) -> TargetReport:
        state = TargetState.KEPT if verdict.kept else TargetState.MISSED
        since = None
        if verdict.measured is None:
            state = TargetState.UNKNOWN
        else:
            known = self._since.setdefault(id_, {})
            if verdict.objective not in known or known[verdict.objective][0] is not state:
                known[verdict.objective] = (state, self._now_us())
            since = format_instant(known[verdict.objective][1])
        return TargetReport(
            objective=verdict.objective,
            statistic=verdict.statistic,
            target=verdict.target,
            tolerance=verdict.tolerance,
            measured=verdict.measured,
            state=state,
            since=since,
        )


def _verdicts(qos: QosSpec, stats: QueryStats | None, rate: float | None) -> Iterator[_Verdict]:
    if qos.latency is not None:
        wanted = qos.latency
        latency = None if stats is None else stats.latency
        measured = None
        if latency is not None:
            percentile = wanted.percentile
            measured = latency.mean_ms if percentile is None else latency.percentile_ms(percentile)
        limit = wanted.at_most / 1000
        kept = measured is not None and measured <= limit * (1 + wanted.tolerance)
        yield _Verdict("latency", wanted.statistic, limit, wanted.tolerance, measured, kept)
    if qos.memory is not None:
        held = None if stats is None else float(sum(memory(stats).values()))
        kept = held is not None and held <= qos.memory.at_most * (1 + qos.memory.tolerance)
        yield _Verdict("memory", "bytes", qos.memory.at_most, qos.memory.tolerance, held, kept)
    if qos.throughput is not None:
        least = qos.throughput.at_least
        # The target holds while so many rows are offered: with nothing left to read it is kept.
        enough = rate is not None and rate >= least * (1 - qos.throughput.tolerance)
        kept = enough or (stats is not None and stats.backlog_bytes == 0)
        yield _Verdict("throughput", "rows_per_s", least, qos.throughput.tolerance, rate, kept)
