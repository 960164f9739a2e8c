"""The policy's seat: who decides what runs next, and about which queries.

All that a policy is told of goes through here: queries that come, change and go, operators that have become
ready, and what classes are worth. Whoever takes the seat is told all of it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, NamedTuple

from mavstream_protocol.classes import DEFAULT_CLASS
from mavstream_server.core.clock import Clock
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.slice_runner import AnyTask, SliceRunner
from mavstream_server.engine.states import OperatorState
from mavstream_server.engine.task import Task
from mavstream_server.scheduling.mechanisms.units import QueryUnits
from mavstream_server.scheduling.policy import Policy, SourceService
from mavstream_server.scheduling.registry import check_options, make_policy


class PolicyHost:
    """The policy of an engine, and what it is told. Queries are changed between two slices only."""

    def __init__(
        self,
        clock: Clock,
        runner: SliceRunner,
        random: Random,
        policy: str,
        options: Mapping[str, Any] | None,
        sources: SourceService | None,
    ) -> None:
        """`sources` says how they are served; None for as the policy's paper has it."""
        self._now = clock.now
        self._runner = runner
        self.admitted: dict[str, RunningQuery] = {}
        """What policies know of: the active queries, and trunks that several of them share."""
        self.priorities: dict[str, int] = {DEFAULT_CLASS: 1}
        self._view = _EngineView(self.admitted, self.priorities, random)
        self.policy: Policy[Any] = make_policy(policy, self._view, options)
        """The one that decides now,"""
        self.sources = sources
        """how sources were asked to be served,"""
        self.service = _service(self.policy, sources)
        """and how they are."""

    # Queries

    def admit(self, query: RunningQuery) -> None:
        """Let the policy decide about a query."""
        self.admitted[query.id] = query
        try:
            query.arrange(self._serves_sources)
            self.policy.admit(query)
        except BaseException:
            del self.admitted[query.id]
            raise

    def retire(self, query: RunningQuery) -> None:
        """Let the policy forget a query."""
        self.policy.retire(query)
        del self.admitted[query.id]

    def rearrange(self, query: RunningQuery, change: Callable[[], None]) -> None:
        """Change what a query consists of, or its class, between two slices."""
        self.policy.retire(query)
        try:
            change()
        finally:
            query.arrange(self._serves_sources)
            for task in query.tasks.values():  # some may have stood by while the policy was switched
                self.watch(task)
            self.policy.admit(query)
            self._tell_ready(query)

    def refresh(self, query: RunningQuery) -> None:
        """Work out a query's units anew from the figures of now, and tell the policy.

        Shared pipelines below the query follow when they publish figures next: they may have many members.
        """
        query.units, query.outdated = QueryUnits(query), False
        self.policy.refreshed(query)
        for part in query.shared:
            part.trunk.outdated = True

    # Policies

    def set_priority(self, class_name: str, priority: int) -> None:
        """Set the priority of a class; it holds from the policy's next decision on."""
        self.priorities[class_name] = priority
        self.policy.reprioritised()

    def switch(self, policy: str, options: Mapping[str, Any] | None, sources: SourceService | None) -> bool:
        """Give the seat to another policy; returns False if the one that has it goes on.

        It does with other options, and with what it has learned, if it can.
        """
        same = policy == self.policy.name and sources == self.sources
        if same and self.policy.adopt(check_options(policy, options)):
            return False
        self.policy = make_policy(policy, self._view, options)
        served = self._serves_sources
        self.sources, self.service = sources, _service(self.policy, sources)
        for query in self.admitted.values():
            if served is not self._serves_sources:
                query.arrange(self._serves_sources)
            for task in query.tasks.values():
                self.watch(task)
            self.policy.admit(query)
            self._tell_ready(query)
        return True

    @property
    def _serves_sources(self) -> bool:
        """Whether it is the policy that serves them."""
        return self.service is SourceService.PER_CLASS

    # Operators

    def woken(self, task: AnyTask) -> None:
        """Tell of an operator that has become ready; a preemptive policy may want to be asked at once."""
        if task.query.id in self.admitted and self.policy.arrived(task, self._now()):
            self._runner.cut = True

    def watch(self, task: Task) -> None:
        """Tell when more comes to what waits at an operator, if the policy wants to know."""
        task.tell_growth(self._grew if self.policy.watches_growth else None)

    def _grew(self, task: Task) -> None:
        self.policy.grew(task, self._now())

    def _tell_ready(self, query: RunningQuery) -> None:
        now = self._now()
        for task in query.operators:
            assert isinstance(task, AnyTask)
            if task.state is OperatorState.READY:
                self.policy.arrived(task, now)


class _EngineView(NamedTuple):
    """What policies see of an engine."""

    queries: Mapping[str, RunningQuery]
    priorities: Mapping[str, int]
    random: Random


def _service(policy: Policy[Any], sources: SourceService | None) -> SourceService:
    """Return how sources are served: as asked for, else as the policy's paper has it where that can be.

    An engine has one core. Sources that would need another one are served by the policy, so that the
    time they take is their class's and not everybody's.
    """
    paper = policy.sources
    return sources or (SourceService.PER_CLASS if paper is SourceService.OWN_CORE else paper)
