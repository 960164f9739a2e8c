"""What the optimizer decides, done; and told again to queries that were instantiated anew."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Protocol

from mavstream_protocol.plan import Plan
from mavstream_protocol.scheduling import SchedulerSettings
from mavstream_server.core.metrics import TargetMetrics
from mavstream_server.optimizer.change import (
    Change,
    CombinedChange,
    PlanChange,
    PolicyChange,
    SheddingChange,
    WeightChange,
)
from mavstream_server.supervisor.commands import EngineCommands


class Scheduler(Protocol):
    """Whoever knows and switches the policy."""

    @property
    def current(self) -> SchedulerSettings:
        """The policy that decides, and its options."""

    async def choose(self, chosen: SchedulerSettings) -> None:
        """Let another policy decide."""


Swap = Callable[[str, Plan], Awaitable[None]]
"""Lets a running query go on with an equivalent plan."""


class Enactor:
    """Carries out changes. What it wants of queries it tells again until they have it."""

    def __init__(self, engine: EngineCommands, scheduler: Scheduler, swap: Swap) -> None:
        self._engine = engine
        self._scheduler = scheduler
        self._swap = swap
        self.shares: dict[str, float] = {}
        """Of rows that are left out, by query; those that read all are not in it."""
        self.weights: dict[str, int] = {}
        """By query; those that weigh 1 are not in it."""
        self._untold: set[str] = set()  # what was wanted of them is not wanted any more

    async def enact(self, change: Change) -> None:
        """Make a change; raises what refuses it, and then it is not wanted any more."""
        shares, weights = dict(self.shares), dict(self.weights)
        try:
            await self._make(change)
        except BaseException:
            # What was made of it until then is told away in the next round.
            self._untold.update(self.weights)
            self.weights = weights
            for query in self.shares.keys() | shares.keys():
                if self.shares.get(query) != shares.get(query):
                    self._want_share(query, shares.get(query, 0.0))
            raise

    async def _make(self, change: Change) -> None:
        match change:
            case CombinedChange(changes):
                for each in changes:
                    await self._make(each)
            case PolicyChange(settings):
                await self._scheduler.choose(settings)
            case SheddingChange(query, share):
                await self._engine.shed_rows(query, share)
                self._want_share(query, share)
            case PlanChange(query, plan):
                await self._swap(query, plan)
            case WeightChange(query, weight):
                await self._engine.weigh_query(query, weight)
                if weight == 1:
                    self.weights.pop(query, None)
                else:
                    self.weights[query] = weight

    async def tell_again(self, figures: Mapping[str, TargetMetrics]) -> None:
        """Tell queries what is wanted of them and is not so: they began anew, or it was taken back."""
        for id_, vitals in figures.items():
            share, weight = self.shares.get(id_, 0.0), self.weights.get(id_, 1)
            if vitals.share != share:
                await self._engine.shed_rows(id_, share)
            if vitals.weight != weight:
                await self._engine.weigh_query(id_, weight)
            self._untold.discard(id_)

    def concerns(self, id_: str) -> bool:
        """Whether anything is wanted of a query, or was until now."""
        return id_ in self.shares or id_ in self.weights or id_ in self._untold

    def take_back(self, *, shares: bool = True, weights: bool = True) -> None:
        """Want nothing any more; queries are told in the next round."""
        if shares:
            for query in tuple(self.shares):
                self._want_share(query, 0.0)
        if weights:
            self._untold.update(self.weights)
            self.weights.clear()

    def limit(self, most: Mapping[str, float]) -> None:
        """Let no query leave out more rows than it allows now; its targets may have changed."""
        for query, share in tuple(self.shares.items()):
            if share > most.get(query, share):
                self._want_share(query, most[query])

    def forget(self, there: Collection[str]) -> None:
        """Drop what is known of queries that are not there any more."""
        for known in (self.shares, self.weights):
            for gone in [id_ for id_ in known if id_ not in there]:
                del known[gone]
        self._untold.intersection_update(there)

    def _want_share(self, query: str, share: float) -> None:
        if share:
            self.shares[query] = share
        else:
            self.shares.pop(query, None)
            self._untold.add(query)
