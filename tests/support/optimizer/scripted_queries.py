"""Queries with scripted metrics, for tests of the optimizer's decisions."""

from __future__ import annotations

from dataclasses import dataclass, field

from mavstream_protocol.qos import QosSpec
from mavstream_server.core.metrics import Latency, QueryMetrics
from mavstream_server.optimizer.monitor import Observed
from mavstream_server.optimizer.optimizer import Pace

PACE = Pace(probation=5, bar=60, calm=10)
LATENCY = {"latency": {"mean": "10ms", "tolerance": "10%"}}
MEMORY = {"memory": {"at_most": "1MB", "tolerance": "0%"}}


@dataclass
class ScriptedQuery:
    """A query whose metrics a test sets."""

    id: str
    class_name: str = "default"
    priority: int = 1
    qos: dict[str, object] = field(default_factory=dict)
    epoch: int = 1
    rows: int = 0
    answers: int = 0
    total: int = 0
    buckets: dict[int, int] = field(default_factory=dict)
    held: int = 0
    backlog: int = 0

    def answer(self, count: int, latency_ms: float) -> None:
        """Count answers, all with the same latency."""
        ns = int(latency_ms * 1e6)
        bucket = int((ns.bit_length() - 1) * 8)
        self.answers += count
        self.total += count * ns
        self.buckets[bucket] = self.buckets.get(bucket, 0) + count

    def observed(self) -> Observed:
        latency = Latency(self.answers, self.total, 10**12, dict(self.buckets))
        stats = QueryMetrics(
            id=self.id, state="running", reason=None, class_name=self.class_name, epoch=self.epoch,
            offset=self.answers, rows_in=self.rows, rows_out=self.answers, queued_bytes=0,
            state_bytes=self.held, backlog_bytes=self.backlog, latency=latency, counters={}, positions={},
            operators=(),
        )  # fmt: skip
        return Observed(self.id, self.class_name, self.priority, QosSpec.model_validate(self.qos), stats)
