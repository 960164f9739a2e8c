"""The policy host: holds the scheduling policy of an engine and reports to it.

All notifications of a policy go through here: queries that are admitted, changed and retired, operators that
have become ready, and priorities of classes. A policy that replaces another one is notified of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, NamedTuple

from mavstream_protocol.classes import DEFAULT_CLASS
from mavstream_server.core.clock import Clock
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.slices.slice_runner import AnyTask, SliceRunner
from mavstream_server.engine.states import OperatorState
from mavstream_server.engine.task import Task
from mavstream_server.scheduling.mechanisms.units import QueryUnits
from mavstream_server.scheduling.policy import Policy, SourceService, UnitKind
from mavstream_server.scheduling.registry import check_options, make_policy


class PolicyHost:
    """The policy of an engine and its notifications. Queries are changed between two slices only."""

    def __init__(
        self,
        clock: Clock,
        runner: SliceRunner,
        random: Random,
        policy: str,
        options: Mapping[str, Any] | None,
        sources: SourceService | None,
    ) -> None:
        """`sources` sets how sources are served; None for the way of the policy's paper."""
        self._now = clock.now
        self._runner = runner
        self.admitted: dict[str, RunningQuery] = {}
        """The queries that policies know, by id: active ones, and shared pipelines."""
        self.priorities: dict[str, int] = {DEFAULT_CLASS: 1}
        self.latencies: dict[str, int] = {}
        """Latency targets (ns) of classes that have one, for queries without their own."""
        self._view = _EngineView(self.admitted, self.priorities, random)
        self.policy: Policy[Any] = make_policy(policy, self._view, options)
        """The policy that decides at present."""
        self._fused_for = self.policy.decider
        self.sources = sources
        """How sources were requested to be served; None for the way of the policy's paper."""
        self.service = _service(self.policy, sources)
        """How sources are served."""

    # Queries

    def admit(self, query: RunningQuery) -> None:
        """Add a query to the policy."""
        self.admitted[query.id] = query
        try:
            query.arrange(self._serves_sources)
            query.retarget(self.latencies)
            self.policy.admit(query)
            self._fuse(query)
        except BaseException:
            del self.admitted[query.id]
            raise

    def retire(self, query: RunningQuery) -> None:
        """Remove a query from the policy."""
        self.policy.retire(query)
        del self.admitted[query.id]

    def rearrange(self, query: RunningQuery, change: Callable[[], None]) -> None:
        """Apply a change of a query's operators, class or target between two slices; update the policy."""
        self.policy.retire(query)
        try:
            change()
        finally:
            query.arrange(self._serves_sources)
            query.retarget(self.latencies)
            for task in query.tasks.values():  # some may have been inactive while the policy was switched
                self.watch(task)
            self.policy.admit(query)
            self._fuse(query)
            self._notify_ready(query)

    def refresh(self, query: RunningQuery) -> None:
        """Recompute a query's units from its present statistics, and notify the policy.

        Shared pipelines of the query follow when they publish statistics next: they may have many members.
        """
        query.units, query.outdated = QueryUnits(query), False
        self.policy.refreshed(query)
        if self.policy.unit is UnitKind.SEGMENT:  # the units themselves may have changed
            self._fuse(query)
        for member in query.shared:
            member.pipeline.outdated = True

    # Policies

    def set_class(self, name: str, priority: int, latency: int | None) -> None:
        """Set the priority and latency target (ns) of a class, from the policy's next decision on."""
        self.priorities[name] = priority
        if latency != self.latencies.get(name):
            self.latencies.pop(name, None)
            if latency is not None:
                self.latencies[name] = latency
            for query in self.admitted.values():
                query.retarget(self.latencies)
        self.policy.reprioritised()

    def switch(self, policy: str, options: Mapping[str, Any] | None, sources: SourceService | None) -> bool:
        """Replace the policy; returns False if the present one continues.

        A policy of the same name continues with the new options and its state, if it supports that.
        """
        same = policy == self.policy.name and sources == self.sources
        if same and self.policy.adopt(check_options(policy, options)):
            return False
        self.policy = make_policy(policy, self._view, options)
        self._fused_for = self.policy.decider
        served = self._serves_sources
        self.sources, self.service = sources, _service(self.policy, sources)
        for query in self.admitted.values():
            if served is not self._serves_sources:
                query.arrange(self._serves_sources)
            for task in query.tasks.values():
                self.watch(task)
            self.policy.admit(query)
            self._fuse(query)
            self._notify_ready(query)
        return True

    def follow_decider(self) -> None:
        """Fuse the operators of all queries anew if another policy decides since the last call."""
        if self._fused_for is not self.policy.decider:
            self._fused_for = self.policy.decider
            for query in self.admitted.values():
                self._fuse(query)

    def _fuse(self, query: RunningQuery) -> None:
        query.fuse(self.policy.hands_over, self._runner.receiver)

    @property
    def _serves_sources(self) -> bool:
        """Whether the policy serves the sources."""
        return self.service is SourceService.PER_CLASS

    # Operators

    def woken(self, task: AnyTask) -> None:
        """Notify the policy of an operator that has become ready; a preemptive policy may end the slice."""
        if task.query.id in self.admitted and self.policy.arrived(task, self._now()):
            self._runner.cut = True

    def watch(self, task: Task) -> None:
        """Notify the policy whenever an operator's queues grow, if it watches growth."""
        task.tell_growth(self._grew if self.policy.watches_growth else None)

    def _grew(self, task: Task) -> None:
        self.policy.grew(task, self._now())

    def _notify_ready(self, query: RunningQuery) -> None:
        now = self._now()
        for task in query.operators:
            assert isinstance(task, AnyTask)
            if task.state is OperatorState.READY:
                self.policy.arrived(task, now)


class _EngineView(NamedTuple):
    """The engine as policies see it."""

    queries: Mapping[str, RunningQuery]
    priorities: Mapping[str, int]
    random: Random


def _service(policy: Policy[Any], sources: SourceService | None) -> SourceService:
    """Return how sources are served: as requested, else as in the policy's paper where that is possible.

    An engine has one core. Sources that would need another one are served by the policy, so that their
    time is accounted to their class and not to all classes.
    """
    paper = policy.sources
    return sources or (SourceService.PER_CLASS if paper is SourceService.OWN_CORE else paper)
