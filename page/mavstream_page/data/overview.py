"""Classes, engine, scheduler and decisions of the optimizer: what the overview shows."""

from __future__ import annotations

from typing import Any

from mavstream import AsyncClient
from mavstream_page.data.history import History, Rate, RecentLatency
from mavstream_page.data.topic import Topic
from mavstream_protocol import QueryClass
from mavstream_protocol.scheduling import SchedulerSettings
from mavstream_protocol.wire.optimizer import DecisionInfo, OptimizerInfo


class ClassHistory:
    """What was measured of a class over the last minutes."""

    def __init__(self) -> None:
        self.rows_in = Rate()
        self.results = Rate()
        self.share = Rate()
        """Share of the engine's time."""
        self.memory = History()
        self.latency = RecentLatency()

    def count(self, at: float, stats: dict[str, Any]) -> None:
        """Take the statistics of the class at a time."""
        self.rows_in.count(at, stats["rows_in"])
        self.results.count(at, stats["results"])
        self.share.count(at, stats["busy_s"])
        self.memory.add(at, sum(stats["memory_bytes"].values()))
        self.latency.count(at, {int(key): count for key, count in stats["latency_buckets"].items()})


class OverviewTopic(Topic):
    """The state of classes, the engine, the scheduler and the optimizer."""

    key = "overview"

    def __init__(self) -> None:
        super().__init__()
        self.stats: dict[str, Any] = {}
        self.classes: dict[str, QueryClass] = {}
        """By name, the most important first."""
        self.scheduler: SchedulerSettings | None = None
        self.optimizer: OptimizerInfo | None = None
        self.decisions: list[DecisionInfo] = []
        """The newest first."""
        self.histories: dict[str, ClassHistory] = {}
        self.received = Rate()
        self.busy = Rate()

    async def poll(self, client: AsyncClient, now: float) -> None:
        """Read the state; the decisions only if there are new ones or one is on probation."""
        self.stats = await client.stats()
        listed = await client.classes()
        self.classes = {each.name: each for each in sorted(listed, key=lambda one: (-one.priority, one.name))}
        self.scheduler = await client.scheduler()
        self.optimizer = await client.optimizer()
        known = max((each.number for each in self.decisions), default=0)
        if (
            known != self.optimizer.decisions
            or self.optimizer.probation
            or any(each.outcome == "probation" for each in self.decisions)
        ):
            self.decisions = await client.decisions()
        for name, stats in self.stats["classes"].items():
            self.histories.setdefault(name, ClassHistory()).count(now, stats)
        for gone in set(self.histories) - set(self.stats["classes"]):
            del self.histories[gone]
        self.received.count(now, self.stats["tuples"]["received"])
        if self.stats["engine"] is not None:
            self.busy.count(now, self.stats["engine"]["busy_s"])
