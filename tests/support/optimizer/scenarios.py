"""A small server for scenarios: a real engine, the real optimizer, scripted arrivals and costs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mavstream_protocol.optimizer import Objective, OptimizerSettings, TargetState
from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.qos import QosSpec
from mavstream_protocol.scheduling import DEFAULT_SCHEDULER, SchedulerSettings, Sharing
from mavstream_server.engine.process.messages import StartQuery
from mavstream_server.engine.reporting import query_metrics
from mavstream_server.optimizer.config import OptimizerConfig
from mavstream_server.optimizer.monitor import is_watched
from mavstream_server.optimizer.plan_searcher import operator_metrics
from mavstream_server.optimizer.service import OptimizerService, Registered
from mavstream_server.planning.rewriting.choice import PlanChoice, PlanSubject, choose
from mavstream_server.planning.rewriting.costing.metrics import PlanMetrics
from mavstream_server.testing import ManualClock, ScriptedStream, SteppedEngine

TICK = 100_000_000  # ns between two frames
TRAIN = 256


class ScriptedPlanSearcher:
    """Searches plans synchronously, with the metrics of a world's engine."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.alternates: dict[str, PlanChoice] = {}
        self.migrating: frozenset[str] = frozenset()

    async def search(self, ids: Iterable[str]) -> Mapping[str, PlanChoice]:
        world = self._world
        for id_ in ids:
            query = world.engine.engine.query(id_)
            subject = PlanSubject(world.plans[id_], {"readings": world.stream.shape})
            metrics = PlanMetrics({"readings": world.rate}, operator_metrics(query_metrics(query, 1)))
            self.alternates[id_] = choose(subject, metrics)
        return self.alternates

    async def stop(self) -> None:
        """Do nothing."""


class World:
    """Queries over one stream `readings (x int)` with a rate that the test sets.

    All begin with the same project, which queries of a class share unless `sharing` says otherwise. It takes
    no time by default; the selects above it, which are not shared, take the time.
    """

    def __init__(
        self,
        path: Path,
        scheduler: SchedulerSettings = DEFAULT_SCHEDULER,
        settings: OptimizerSettings | None = None,
        sharing: Sharing = Sharing.CLASS,
        train: int = TRAIN,
        **priorities: int,
    ) -> None:
        self.clock = ManualClock()
        self.stream = ScriptedStream(path, "readings", "x int", self.clock)
        self.engine = SteppedEngine(path, self.clock, scheduler, train=train, sharing=sharing)
        self.engine.engine.attach("readings", self.stream.reader)
        for name, priority in priorities.items():
            self.engine.engine.set_class(name, priority)
        self.registered: dict[str, Registered] = {}
        self.plans: dict[str, Plan] = {}
        config = OptimizerConfig(settings or OptimizerSettings())
        self.optimizing = OptimizerService(
            self.engine, self.engine, self, self.clock, config, ScriptedPlanSearcher(self)
        )
        self.rate = 0.0
        self.second = 0
        self._begin = self.clock.now()
        self._owed = 0.0
        self.arrived = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.engine.close()
        self.stream.close()

    # Queries, as the optimizer sees them

    def watched(self) -> Collection[Registered]:
        return [one for one in self.registered.values() if is_watched(one.qos)]

    def class_sizes(self) -> Mapping[str, int]:
        return Counter(one.class_name for one in self.registered.values())

    def priorities(self) -> Mapping[str, int]:
        return self.engine.engine.policy_host.priorities

    async def migrate_plan(self, id_: str, plan: Plan) -> None:
        await self.engine.migrate_plan(id_, infer(plan, {"readings": self.stream.shape}), 1)
        self.plans[id_] = plan

    # Events

    async def query(
        self,
        id_: str,
        class_name: str,
        qos: dict[str, Any],
        us_per_row: int,
        where: str | None = None,
        shared_us: int = 0,
    ) -> None:
        """Start a query whose select takes a time per row; each of several conditions is a select.

        Without a condition, all rows pass one that no other query has. `shared_us` is its project's cost.
        """
        conditions = (where or f"x >= -{len(self.plans)}").split(";")
        nodes: dict[str, Any] = {
            "in": {"op": "source", "stream": "readings"},
            "all": {"op": "project", "input": "in", "compute": {"x": "x"}},
        }
        for number, condition in enumerate(conditions, 1):
            nodes[f"s{number}"] = {"op": "select", "input": list(nodes)[-1], "where": condition}
        self.plans[id_] = Plan.parse({"root": list(nodes)[-1], "nodes": nodes})
        plan = infer(self.plans[id_], {"readings": self.stream.shape})
        spec = QosSpec.model_validate(qos)
        target = None if spec.latency is None else spec.latency.at_most
        await self.engine.start(
            StartQuery(id_, plan, class_name, latency_target=target, epoch=1),
            {"project": shared_us * 1000, "select": us_per_row * 1000},
        )
        self.registered[id_] = Registered(id_, class_name, spec)

    async def seconds(self, count: int) -> None:
        """Let a number of seconds pass, with a round of the optimizer at the end of each."""
        for _ in range(count):
            self.second += 1
            end = self._begin + self.second * 1_000_000_000
            for tick in range(end - 1_000_000_000 + TICK, end + 1, TICK):
                self._arrive(tick)
                self.engine.work_until(tick)
            await self.optimizing.round()
            await asyncio.sleep(0)  # the plan searcher runs

    def _arrive(self, at: int) -> None:
        self._owed += self.rate * TICK / 1e9
        rows, self._owed = int(self._owed), self._owed % 1
        if rows:
            self.stream.columns({"x": list(range(self.arrived, self.arrived + rows))}, arrival=at - TICK)
            self.arrived += rows

    # Observations

    def state(self, id_: str, objective: Objective = Objective.LATENCY) -> TargetState:
        return self.optimizing.monitor.queries[id_].statuses[objective].state

    def measured(self, id_: str, objective: Objective = Objective.LATENCY) -> float | None:
        return self.optimizing.monitor.queries[id_].targets[objective].measured

    @property
    def members(self) -> set[str]:
        """The queries that run on a shared pipeline now."""
        return {
            part.query.id for pipeline in self.engine.engine.sharing.pipelines for part in pipeline.members
        }

    @property
    def policy(self) -> str:
        """The policy that decides, and the one inside it: `cqc/segment`."""
        current = self.engine.current
        inner = current.options.get("inner")
        return current.policy if inner is None else f"{current.policy}/{inner['policy']}"

    @property
    def decisions(self) -> list[tuple[str, str]]:
        """The decisions so far, as rule and outcome."""
        return [(one.proposal.rule, one.outcome.value) for one in self.optimizing.optimizer.journal]


def play(scenario: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run a scenario to its end."""
    asyncio.run(scenario())
