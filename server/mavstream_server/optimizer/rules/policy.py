"""Switching the policy: a decision table from what is missed to who is good at it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mavstream_protocol.scheduling import DEFAULT_SCHEDULER, SchedulerSettings
from mavstream_server.optimizer.change import PolicyChange, Proposal
from mavstream_server.optimizer.monitor import Objective
from mavstream_server.optimizer.rule import OptimizerRule
from mavstream_server.optimizer.situation import Situation

CANDIDATES: Mapping[Objective, Sequence[SchedulerSettings]] = {
    # Classes by priority; inside one, who answers most per time.
    Objective.LATENCY: (
        DEFAULT_SCHEDULER,
        SchedulerSettings(policy="cqc"),
        SchedulerSettings(policy="abd"),
    ),
    # Who releases most memory per time (MavStream thesis, 6.3; CAPE).
    Objective.MEMORY: (SchedulerSettings(policy="segment"), SchedulerSettings(policy="chain")),
    # Whole queries in long trains, which cost least per tuple; then the path with the highest capacity.
    Objective.THROUGHPUT: (
        SchedulerSettings(policy="rr", options={"unit": "query"}),
        SchedulerSettings(policy="path_capacity"),
    ),
}
"""By what is missed, the policies to try, in order."""


class SwitchPolicyRule(OptimizerRule):
    """Lets a policy decide that is made for what is missed.

    Only those are tried that stand ahead of the one that decides: a policy that is made for what is missed,
    and misses it all the same, lacks time, which another one of its kind has not either.
    """

    name = "policy"
    about = "switches to a policy that is made for the objective that is missed, unless one decides already"

    def __init__(self) -> None:
        self.preferred: SchedulerSettings | None = None
        """What is tried ahead of the table, whatever is missed."""

    def propose(self, situation: Situation) -> Iterator[Proposal]:
        """Go by the target of the most important class that is furthest off.

        A switch costs nobody a row and is undone as quickly: it does not wait until the target is missed.
        """
        missed = situation.monitor.pressing()
        if not missed:
            return
        worst, target = missed[0]
        first = () if self.preferred is None else (self.preferred,)
        for settings in (*first, *CANDIDATES[target.objective]):
            if settings == situation.scheduler:
                return
            yield Proposal(
                rule=self.name,
                change=PolicyChange(settings),
                undo=PolicyChange(situation.scheduler),
                what=f"switch from {situation.scheduler.policy} to {settings.policy}",
                why=target.told(worst.query),
                priority=worst.query.priority,
                queries=tuple(
                    watched.query.id for watched, other in missed if other.objective is target.objective
                ),
            )
