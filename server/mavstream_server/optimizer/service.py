"""Optimizer service: checks the targets periodically and, if enabled, acts to meet them.

The same code drives a server's engine process and an engine that is stepped manually.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import NamedTuple, Protocol, TypedDict

from mavstream_protocol.errors import InvalidObject, MavstreamError, ProblemItem
from mavstream_protocol.instants import format_instant
from mavstream_protocol.optimizer import OptimizerSettings, PaceSettings, PolicyChoice
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.qos import QosSpec
from mavstream_protocol.scheduling import SchedulerSettings
from mavstream_server.core.clock import Clock
from mavstream_server.core.metrics import TargetMetrics
from mavstream_server.optimizer.config import OptimizerConfig
from mavstream_server.optimizer.enacting import Enactor, Scheduler
from mavstream_server.optimizer.monitor import Monitor, Observed
from mavstream_server.optimizer.optimizer import Optimizer, Pace
from mavstream_server.optimizer.rules import all_rules
from mavstream_server.optimizer.rules.policy import SwitchPolicyRule
from mavstream_server.optimizer.rules.rank import RankRule
from mavstream_server.optimizer.rules.shedding import ShedRule
from mavstream_server.optimizer.situation import Situation
from mavstream_server.planning.rewriting.choice import PlanChoice
from mavstream_server.supervisor.commands import EngineCommands
from mavstream_server.supervisor.engine_link import EngineRefused, EngineUnavailable

_log = logging.getLogger("mavstream.optimizer")

_SAFE_QUERY_ROUNDS = 3  # queries that meet their targets by a wide margin are observed once in so many rounds
_MAX_SEARCHED = 50  # queries at a time for which plans are searched
_ALWAYS_OBSERVED = 100  # queries: up to this number, all are observed in every round


class Registered(NamedTuple):
    """A registered query that is to be monitored."""

    id: str
    class_name: str
    qos: QosSpec
    could_move: Callable[[], bool] = lambda: False
    """Whether it could run with backend `spark` and keep its targets there."""


class Queries(Protocol):
    """The registered queries, as the optimizer needs them."""

    def watched(self) -> Collection[Registered]:
        """Return the queries that can run and have targets or allow shedding."""

    def class_sizes(self) -> Mapping[str, int]:
        """Return the number of queries that can run, by class."""

    def priorities(self) -> Mapping[str, int]:
        """Return the priorities of the classes."""

    async def migrate_plan(self, id_: str, plan: Plan) -> None:
        """Start the migration of a running query to an equivalent plan."""


class PlanSearch(Protocol):
    """Searches for alternate plans of queries."""

    alternates: dict[str, PlanChoice]
    """The plans found, by query id."""
    migrating: frozenset[str]
    """Ids of the queries with a migration under way."""

    async def search(self, ids: Iterable[str]) -> Mapping[str, PlanChoice]:
        """Update what is known about these queries."""

    async def stop(self) -> None:
        """Stop searching."""


class InvalidOptimizer(InvalidObject):
    """Raised for optimizer settings that name an unknown rule, policy or option."""

    code = "invalid_optimizer"
    title = "The settings of the optimizer are not valid"


class _Plans(TypedDict, total=False):
    alternates: Mapping[str, PlanChoice]
    migrating: frozenset[str]


class OptimizerService:
    """Monitors the queries that have targets, decides and enacts: one round per period.

    Without targets, nothing is requested from the engine. While the engine is down or restarts queries, the
    optimizer pauses: an action on probation is judged by metrics taken afterwards.
    """

    def __init__(
        self,
        engine: EngineCommands,
        scheduler: Scheduler,
        queries: Queries,
        clock: Clock,
        config: OptimizerConfig | None = None,
        searcher: PlanSearch | None = None,
    ) -> None:
        """`searcher` searches for alternate plans; without one, queries are never migrated."""
        self._engine = engine
        self._scheduler = scheduler
        self._queries = queries
        self._clock = clock
        # Computed once, so that a monotonic time always maps to the same instant.
        self._offset = clock.now() - clock.monotonic()
        self.monitor = Monitor()
        self.optimizer = Optimizer(all_rules())
        self.enactor = Enactor(engine, scheduler, queries.migrate_plan)
        self._searcher = searcher
        self._searching: asyncio.Task[object] | None = None
        self._config = config or OptimizerConfig(OptimizerSettings())
        self._acting = asyncio.Lock()
        self._rounds = 0
        self._apply(self.settings)

    @property
    def settings(self) -> OptimizerSettings:
        """The settings in force."""
        return self._config.settings

    @property
    def scheduler(self) -> SchedulerSettings:
        """The current policy and its options."""
        return self._scheduler.current

    # Clock

    @property
    def now(self) -> float:
        """Monotonic time, in seconds."""
        return self._clock.monotonic() / 1e9

    def instant(self, at: float) -> str:
        """Return a monotonic time as ISO 8601 text."""
        return format_instant((round(at * 1e9) + self._offset) // 1000)

    # Rounds

    async def run(self) -> None:
        """Run rounds until cancelled; errors of a round are logged."""
        while True:
            await asyncio.sleep(self.settings.period / 1e6)
            try:
                await self.round()
            except Exception:
                _log.exception("a round of the optimizer failed")

    async def stop(self) -> None:
        """Stop background work: the plan search."""
        if self._searching is not None:
            self._searching.cancel()
        if self._searcher is not None:
            await self._searcher.stop()

    async def round(self) -> None:
        """Observe the targets; if enabled, decide and enact."""
        watched = {query.id: query for query in self._queries.watched()}
        self.monitor.forget(watched)
        self.enactor.forget(watched)
        self.enactor.limit({id_: query.qos.max_loss for id_, query in watched.items()})
        if not watched:
            return
        self._rounds += 1
        every = 1 if len(watched) <= _ALWAYS_OBSERVED else _SAFE_QUERY_ROUNDS
        due = [query for index, query in enumerate(watched.values()) if self._is_due(query, index, every)]
        priorities = self._queries.priorities()
        metrics = await self._target_metrics([query.id for query in due])
        now = self.now
        self.monitor.observe(
            (
                Observed(id_, class_, priorities.get(class_, 1), qos, metrics.get(id_))
                for id_, class_, qos, _ in due
            ),
            now,
        )
        async with self._acting:
            if due and not metrics:
                self.optimizer.interrupted(now)
                return
            try:
                await self.enactor.resend(metrics)
                if self.settings.enabled:
                    await self._act(now, priorities, watched)
            except EngineUnavailable:
                self.optimizer.interrupted(now)

    def _is_due(self, query: Registered, index: int, every: int) -> bool:
        """Whether to observe a query in this round; safe queries are observed once in `every` rounds."""
        known = self.monitor.queries.get(query.id)
        safe = (
            known is not None
            and known.safe
            and known.query.qos == query.qos
            and not self.enactor.concerns(query.id)
        )
        return not safe or (index + self._rounds) % every == 0

    async def _target_metrics(self, ids: list[str]) -> dict[str, TargetMetrics]:
        try:
            return await self._engine.target_metrics(ids)
        except (EngineUnavailable, EngineRefused):
            return {}

    async def _act(
        self, now: float, priorities: Mapping[str, int], watched: Mapping[str, Registered]
    ) -> None:
        missed = self.monitor.distress > 0
        situation = Situation(
            now=now,
            monitor=self.monitor,
            scheduler=self._scheduler.current,
            priorities=priorities,
            shed=self.enactor.shares,
            weights=self.enactor.weights,
            # Counting iterates over all queries, so it is done only when an action may follow.
            class_sizes=self._queries.class_sizes() if missed else {},
            could_move=lambda id_: id_ in watched and watched[id_].could_move(),
            **self._plans(missed),
        )
        change = self.optimizer.decide(situation)
        if change is None:
            return
        try:
            await self.enactor.enact(change)
        except MavstreamError as error:
            self.optimizer.failed(f"the change failed: {error}", now)
            _log.warning("a change failed", extra={"change": repr(change)[:500], "reason": str(error)})

    def _plans(self, missed: bool) -> _Plans:
        """Return the known alternate plans; updates them in the background while targets are missed."""
        if self._searcher is None:
            return {}
        if missed and (self._searching is None or self._searching.done()):
            self._searching = asyncio.create_task(self._search_plans(self._searcher, self._candidates()))
        return {"alternates": self._searcher.alternates, "migrating": self._searcher.migrating}

    async def _search_plans(self, searcher: PlanSearch, ids: list[str]) -> None:
        try:
            await searcher.search(ids)
        except Exception:
            _log.exception("the search for alternate plans failed")

    def _candidates(self) -> list[str]:
        """Return the queries to search plans for: those that miss targets, then less important ones."""
        missed = dict.fromkeys(watched.query.id for watched, _ in self.monitor.missed())
        others = sorted(self.monitor.queries.values(), key=lambda one: (one.query.priority, one.query.id))
        return list(missed | dict.fromkeys(one.query.id for one in others))[:_MAX_SEARCHED]

    # Changes by users

    async def overrule(self, action: Callable[[], Awaitable[None]], reason: str) -> None:
        """Perform a user's action while no change is being made; ends the probation of the current action."""
        async with self._acting:
            await action()
            self.optimizer.overruled(reason, self.now)

    async def configure(self, settings: OptimizerSettings) -> None:
        """Apply new settings; raises InvalidOptimizer, and the errors of a refused policy.

        Effects of a rule that is now disabled on queries are reverted; a policy that it chose stays.
        """
        self._check(settings)
        async with self._acting:
            current = self._scheduler.current
            if current.policy == "amos" and settings.specification != self.settings.specification:
                await self._scheduler.choose(_amos(settings, current.options, current))
            self._apply(settings)

    def _check(self, settings: OptimizerSettings) -> None:
        known = [rule.name for rule in self.optimizer.rules]
        unknown = [name for name in settings.rules if name not in known]
        if unknown:
            raise InvalidOptimizer(
                [
                    ProblemItem(
                        pointer=f"rules/{name}",
                        code="unknown_rule",
                        detail=f"unknown rule '{name[:100]}'; the rules are: {', '.join(known)}",
                    )
                    for name in unknown
                ]
            )

    def _apply(self, settings: OptimizerSettings) -> None:
        optimizer, now = self.optimizer, self.now
        self._config.settings = settings
        optimizer.pace = _pace(settings.pace)
        optimizer.disabled = {name for name, on in settings.rules.items() if not on}
        off = {rule.name for rule in optimizer.rules} if not settings.enabled else optimizer.disabled
        for rule in optimizer.rules:
            if isinstance(rule, SwitchPolicyRule):
                prefers = settings.policy_choice is PolicyChoice.AMOS
                rule.preferred = _amos(settings, {"learner": "sharp"}) if prefers else None
        self.enactor.withdraw(shares=ShedRule.name in off, weights=RankRule.name in off)
        trial = optimizer.on_probation
        if trial is not None and trial.proposal.rule in off:
            optimizer.overruled(f"rule {trial.proposal.rule} was disabled", now)


def _pace(pace: PaceSettings) -> Pace:
    return Pace(pace.probation / 1e6, pace.bar / 1e6, pace.calm / 1e6, pace.gain)


def _amos(
    settings: OptimizerSettings, options: Mapping[str, object], like: SchedulerSettings | None = None
) -> SchedulerSettings:
    """Return the AMoS policy with the specification as its weights."""
    specification = settings.specification.model_dump(mode="json")
    sources = None if like is None else like.sources
    return SchedulerSettings(
        policy="amos", options={**options, "specification": specification}, sources=sources
    )
