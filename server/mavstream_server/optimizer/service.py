"""The optimizer at work: every period it looks at the targets and, if it may, acts to keep them.

The same code drives a server's engine process and an engine that is stepped by hand.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import NamedTuple, Protocol, TypedDict

from mavstream_protocol.errors import InvalidObject, MavstreamError, ProblemItem
from mavstream_protocol.instants import format_instant
from mavstream_protocol.optimizer import OptimizerSettings, PaceSettings, PolicyChoice
from mavstream_protocol.plan import Plan
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

_RARELY = 3  # rounds
_SCOUTED = 50  # queries at a time that other plans are looked for
_FEW = 100  # queries: so many are looked at in every round, whatever they are like


class Registered(NamedTuple):
    """A query that is to be watched."""

    id: str
    class_name: str
    qos: QosSpec


class Queries(Protocol):
    """The registered queries, as far as the optimizer has to know them."""

    def watched(self) -> Collection[Registered]:
        """Return those that can run and have targets, or allow loss."""

    def class_sizes(self) -> Mapping[str, int]:
        """Return how many queries each class has that can run."""

    def priorities(self) -> Mapping[str, int]:
        """Return the priorities of the classes."""

    async def swap_plan(self, id_: str, plan: Plan) -> None:
        """Let a running query go on with an equivalent plan."""


class PlanSearch(Protocol):
    """Whoever looks for other plans of queries; it takes its time."""

    alternates: dict[str, PlanChoice]
    """What was found, by query."""
    swapping: frozenset[str]
    """Queries whose plan is being swapped."""

    async def look(self, ids: Iterable[str]) -> Mapping[str, PlanChoice]:
        """Bring up to date what is known of these queries."""

    async def stop(self) -> None:
        """Look no more."""


class InvalidOptimizer(InvalidObject):
    """Settings that name something that the optimizer does not have."""

    code = "invalid_optimizer"
    title = "The settings of the optimizer are not valid"


class _Plans(TypedDict, total=False):
    alternates: Mapping[str, PlanChoice]
    swapping: frozenset[str]


class OptimizerService:
    """Watches the queries that have targets, decides, and has it done: one round per period.

    While nothing has a target, nothing is asked of the engine. While the engine is away, or starts queries
    anew, it waits: what is on trial is judged by figures that come afterwards.
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
        """Without a searcher plans stay as they are."""
        self._engine = engine
        self._scheduler = scheduler
        self._queries = queries
        self._clock = clock
        # Taken once, so that one time is always told as the same instant.
        self._offset = clock.now() - clock.monotonic()
        self.monitor = Monitor()
        self.optimizer = Optimizer(all_rules())
        self.enactor = Enactor(engine, scheduler, queries.swap_plan)
        self._searcher = searcher
        self._searching: asyncio.Task[object] | None = None
        self._config = config or OptimizerConfig(OptimizerSettings())
        self._acting = asyncio.Lock()
        self._rounds = 0
        self._take_over(self.settings)

    @property
    def settings(self) -> OptimizerSettings:
        """The settings in force."""
        return self._config.settings

    @property
    def scheduler(self) -> SchedulerSettings:
        """The policy that decides, and its options."""
        return self._scheduler.current

    # Time

    @property
    def now(self) -> float:
        """Seconds on a clock that never falls."""
        return self._clock.monotonic() / 1e9

    def instant(self, at: float) -> str:
        """Return a time of that clock as ISO 8601 text."""
        return format_instant((round(at * 1e9) + self._offset) // 1000)

    # Rounds

    async def run(self) -> None:
        """Go on for ever, whatever goes wrong in a round."""
        while True:
            await asyncio.sleep(self.settings.period / 1e6)
            try:
                await self.round()
            except Exception:
                _log.exception("a round of the optimizer failed")

    async def stop(self) -> None:
        """End what goes on beside the rounds."""
        if self._searching is not None:
            self._searching.cancel()
        if self._searcher is not None:
            await self._searcher.stop()

    async def round(self) -> None:
        """Look at the targets; decide, and do it, if that is wanted."""
        watched = {query.id: query for query in self._queries.watched()}
        self.monitor.forget(watched)
        self.enactor.forget(watched)
        self.enactor.limit({id_: query.qos.max_loss for id_, query in watched.items()})
        if not watched:
            return
        self._rounds += 1
        every = 1 if len(watched) <= _FEW else _RARELY
        asked = [query for place, query in enumerate(watched.values()) if self._due(query, place, every)]
        priorities = self._queries.priorities()
        figures = await self._figures([query.id for query in asked])
        now = self.now
        self.monitor.observe(
            (
                Observed(id_, class_, priorities.get(class_, 1), qos, figures.get(id_))
                for id_, class_, qos in asked
            ),
            now,
        )
        async with self._acting:
            if asked and not figures:
                self.optimizer.interrupted(now)
                return
            try:
                await self.enactor.tell_again(figures)
                if self.settings.enabled:
                    await self._act(now, priorities)
            except EngineUnavailable:
                self.optimizer.interrupted(now)

    def _due(self, query: Registered, place: int, every: int) -> bool:
        """Whether a query's figures are taken now; of those far from missing anything, one in `every`."""
        known = self.monitor.queries.get(query.id)
        at_ease = (
            known is not None
            and known.at_ease
            and known.query.qos == query.qos
            and not self.enactor.concerns(query.id)
        )
        return not at_ease or (place + self._rounds) % every == 0

    async def _figures(self, ids: list[str]) -> dict[str, TargetMetrics]:
        try:
            return await self._engine.target_metrics(ids)
        except (EngineUnavailable, EngineRefused):
            return {}

    async def _act(self, now: float, priorities: Mapping[str, int]) -> None:
        missed = self.monitor.distress > 0
        situation = Situation(
            now=now,
            monitor=self.monitor,
            scheduler=self._scheduler.current,
            priorities=priorities,
            shed=self.enactor.shares,
            weights=self.enactor.weights,
            # Counting goes through all queries, and only who acts must know.
            class_sizes=self._queries.class_sizes() if missed else {},
            **self._plans(missed),
        )
        change = self.optimizer.decide(situation)
        if change is None:
            return
        try:
            await self.enactor.enact(change)
        except MavstreamError as error:
            self.optimizer.failed(f"it could not be done: {error}", now)
            _log.warning("a change was refused", extra={"change": repr(change)[:500], "reason": str(error)})

    def _plans(self, missed: bool) -> _Plans:
        """Return what is known of other plans, and have it brought up to date while something is missed."""
        if self._searcher is None:
            return {}
        if missed and (self._searching is None or self._searching.done()):
            self._searching = asyncio.create_task(self._search_plans(self._searcher, self._candidates()))
        return {"alternates": self._searcher.alternates, "swapping": self._searcher.swapping}

    async def _search_plans(self, scout: PlanSearch, ids: list[str]) -> None:
        try:
            await scout.look(ids)
        except Exception:
            _log.exception("looking for other plans failed")

    def _candidates(self) -> list[str]:
        """Return whose plans could matter: of those that miss something, then of those less important."""
        missed = dict.fromkeys(watched.query.id for watched, _ in self.monitor.missed())
        others = sorted(self.monitor.queries.values(), key=lambda one: (one.query.priority, one.query.id))
        return list(missed | dict.fromkeys(one.query.id for one in others))[:_SCOUTED]

    # What people change

    async def overrule(self, action: Callable[[], Awaitable[None]], reason: str) -> None:
        """Do what a person wants, not while a change is being made; what is on trial ends with it."""
        async with self._acting:
            await action()
            self.optimizer.overruled(reason, self.now)

    async def configure(self, settings: OptimizerSettings) -> None:
        """Take other settings; raises InvalidOptimizer, and what a policy is refused with.

        What a rule that is switched off has done to queries is taken back; a policy that it chose stays.
        """
        self._check(settings)
        async with self._acting:
            current = self._scheduler.current
            if current.policy == "amos" and settings.specification != self.settings.specification:
                await self._scheduler.choose(_amos(settings, current.options, current))
            self._take_over(settings)

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

    def _take_over(self, settings: OptimizerSettings) -> None:
        optimizer, now = self.optimizer, self.now
        self._config.settings = settings
        optimizer.pace = _pace(settings.pace)
        optimizer.disabled = {name for name, on in settings.rules.items() if not on}
        off = {rule.name for rule in optimizer.rules} if not settings.enabled else optimizer.disabled
        for rule in optimizer.rules:
            if isinstance(rule, SwitchPolicyRule):
                prefers = settings.policy_choice is PolicyChoice.AMOS
                rule.preferred = _amos(settings, {"learner": "sharp"}) if prefers else None
        self.enactor.take_back(shares=ShedRule.name in off, weights=RankRule.name in off)
        trial = optimizer.on_probation
        if trial is not None and trial.proposal.rule in off:
            optimizer.overruled(f"rule {trial.proposal.rule} was switched off", now)


def _pace(pace: PaceSettings) -> Pace:
    return Pace(pace.probation / 1e6, pace.bar / 1e6, pace.calm / 1e6, pace.gain)


def _amos(
    settings: OptimizerSettings, options: Mapping[str, object], like: SchedulerSettings | None = None
) -> SchedulerSettings:
    """Return AMoS with the specification as its weights."""
    specification = settings.specification.model_dump(mode="json")
    sources = None if like is None else like.sources
    return SchedulerSettings(
        policy="amos", options={**options, "specification": specification}, sources=sources
    )
