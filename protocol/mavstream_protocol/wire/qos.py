"""QoS report of a query: its targets, measured values, target states and optimizer actions."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict

from mavstream_protocol.described import Described
from mavstream_protocol.optimizer import Objective, TargetState
from mavstream_protocol.wire.optimizer import DecisionInfo
from mavstream_protocol.wire.resources import LatencySummary

_CONFIG = ConfigDict(frozen=True)

_EXAMPLE: dict[str, Any] = {
    "query": "hot_homes-k3xv7q",
    "epoch": 1,
    "window_s": 10.0,
    "targets": [
        {
            "objective": "latency",
            "statistic": "p95",
            "target": 50.0,
            "tolerance": 0.1,
            "weight": 1.0,
            "measured": 3.2,
            "state": "kept",
            "since": "2026-01-01T12:00:00.000000Z",
            "history": [
                {
                    "at": "2026-01-01T12:00:00.000000Z",
                    "before": "unknown",
                    "after": "kept",
                    "measured": 2.9,
                }
            ],
        }
    ],
    "latency_ms": {"count": 9, "mean": 2.1, "p50": 1.9, "p95": 3.2, "p99": 3.4, "max": 3.4},
    "memory_bytes": {"queued": 0, "state": 4096, "backlog": 0},
    "rows_per_s": 1200.0,
    "results": 9,
    "shed": {"rows": 0, "share": 0.0, "spells": []},
    "actions": [],
}


class StateChange(Described):
    """A change of a target's state."""

    model_config = _CONFIG
    at: str
    before: TargetState
    after: TargetState
    measured: float | None


class TargetReport(Described):
    """One target of a query."""

    model_config = _CONFIG
    objective: Objective
    statistic: str
    """The statistic that is compared with the target: `mean`, `p95`, ..., `bytes`, `rows_per_s`."""
    target: float
    """Milliseconds, bytes or rows per second."""
    tolerance: float
    """The share of the target that it may be missed by before it counts as missed."""
    weight: float = 1.0
    """Weight when targets of the query conflict: 1 on average; no action is taken for 0."""
    measured: float | None
    """Measured value over the sliding window, in the unit of the target."""
    state: TargetState
    since: str | None
    """null while it is unknown."""
    history: tuple[StateChange, ...]
    """The last changes of the state, the newest last."""


class ShedSpell(Described):
    """A shedding interval: a time during which one share of a stream's rows was dropped, by arrival time."""

    model_config = _CONFIG
    stream: str
    share: float
    """The requested share."""
    since: str
    until: str
    seen: int
    """Number of rows that arrived in the interval."""
    rows: int
    """Number of these rows that were dropped."""


class ShedReport(Described):
    """Rows of a query that load shedding dropped."""

    model_config = _CONFIG
    rows: int
    """Left out since the query was last instantiated."""
    share: float
    """The share that is being dropped now."""
    spells: tuple[ShedSpell, ...]
    """Shedding intervals: the last 32 per source, the newest last."""


class QosReport(Described):
    """Targets of a query and their measured values."""

    model_config = ConfigDict(**_CONFIG, json_schema_extra={"examples": [_EXAMPLE]})
    query: str
    epoch: int
    window_s: float
    """The length of the sliding window that targets are judged over, in seconds."""
    targets: tuple[TargetReport, ...]
    """Empty if the query has no targets."""
    latency_ms: LatencySummary | None
    """Latency in milliseconds; null while the query is not in the engine.

    Measured over the sliding window for queries with targets, else since the query was last instantiated.
    """
    memory_bytes: dict[str, int]
    """Bytes queued, in state and in backlog; shared memory counts in full for each query."""
    rows_per_s: float | None
    """Rows read: over the sliding window where there are targets, else since the report before this one."""
    results: int
    """Answers since the query was last instantiated."""
    shed: ShedReport
    actions: tuple[DecisionInfo, ...]
    """Optimizer actions for this query or at its expense, the newest last."""
