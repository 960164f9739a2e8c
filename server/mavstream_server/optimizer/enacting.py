"""Enacting: carries out the optimizer's changes, and repeats them for queries that were restarted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Protocol

from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.scheduling import SchedulerSettings
from mavstream_server.core.metrics import TargetMetrics
from mavstream_server.engine.process.messages import ShedRows, SwitchPolicy, WeighQuery
from mavstream_server.optimizer.change import Change, CombinedChange, PlanChange
from mavstream_server.supervisor.commands import EngineCommands


class Scheduler(Protocol):
    """Reads and switches the scheduling policy."""

    @property
    def current(self) -> SchedulerSettings:
        """The current policy and its options."""

    async def choose(self, chosen: SchedulerSettings) -> None:
        """Switch to another policy."""


Migrate = Callable[[str, Plan], Awaitable[None]]
"""Migrates a running query, given by id, to an equivalent plan."""


class Enactor:
    """Carries out changes. Settings of queries are sent again until the queries report them."""

    def __init__(self, engine: EngineCommands, scheduler: Scheduler, migrate: Migrate) -> None:
        self._engine = engine
        self._scheduler = scheduler
        self._migrate = migrate
        self.shares: dict[str, float] = {}
        """Requested share of shed rows by query id; queries that shed nothing are absent."""
        self.weights: dict[str, int] = {}
        """Requested weight by query id; queries of weight 1 are absent."""
        self._to_reset: set[str] = set()  # queries whose shedding or weight is to be reset

    async def enact(self, change: Change) -> None:
        """Make a change; if it is refused, raises the error and withdraws the change."""
        shares, weights = dict(self.shares), dict(self.weights)
        try:
            await self._make(change)
        except BaseException:
            # The parts that were already made are reset in the next round.
            self._to_reset.update(self.weights)
            self.weights = weights
            for query in self.shares.keys() | shares.keys():
                if self.shares.get(query) != shares.get(query):
                    self._request_share(query, shares.get(query, 0.0))
            raise

    async def _make(self, change: Change) -> None:
        match change:
            case CombinedChange(changes):
                for each in changes:
                    await self._make(each)
            case SwitchPolicy(settings):
                await self._scheduler.choose(settings)
            case ShedRows(query, share):
                await self._engine.call(change)
                self._request_share(query, share)
            case PlanChange(query, plan):
                await self._migrate(query, plan)
            case WeighQuery(query, weight):
                await self._engine.call(change)
                if weight == 1:
                    self.weights.pop(query, None)
                else:
                    self.weights[query] = weight

    async def resend(self, metrics: Mapping[str, TargetMetrics]) -> None:
        """Send settings again to queries whose metrics differ from them: restarted ones and reset ones."""
        for id_, reported in metrics.items():
            share, weight = self.shares.get(id_, 0.0), self.weights.get(id_, 1)
            if reported.share != share:
                await self._engine.shed_rows(id_, share)
            if reported.weight != weight:
                await self._engine.weigh_query(id_, weight)
            self._to_reset.discard(id_)

    def concerns(self, id_: str) -> bool:
        """Whether a query has settings, or settings that are still to be reset."""
        return id_ in self.shares or id_ in self.weights or id_ in self._to_reset

    def withdraw(self, *, shares: bool = True, weights: bool = True) -> None:
        """Withdraw all settings; the queries are reset in the next round."""
        if shares:
            for query in tuple(self.shares):
                self._request_share(query, 0.0)
        if weights:
            self._to_reset.update(self.weights)
            self.weights.clear()

    def limit(self, most: Mapping[str, float]) -> None:
        """Cap the shares of shed rows at what the queries allow now; their QoS may have changed."""
        for query, share in tuple(self.shares.items()):
            if share > most.get(query, share):
                self._request_share(query, most[query])

    def forget(self, present: Collection[str]) -> None:
        """Drop the settings of queries that no longer exist."""
        for known in (self.shares, self.weights):
            for absent in [id_ for id_ in known if id_ not in present]:
                del known[absent]
        self._to_reset.intersection_update(present)

    def _request_share(self, query: str, share: float) -> None:
        if share:
            self.shares[query] = share
        else:
            self.shares.pop(query, None)
            self._to_reset.add(query)
