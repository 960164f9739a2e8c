"""Switching the policy: a decision table from what is missed to who is good at it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mavstream_protocol.scheduling import DEFAULT_SCHEDULER, SchedulerSettings, SourceService
from mavstream_server.optimizer.change import PolicyChange, Proposal
from mavstream_server.optimizer.monitor import Objective
from mavstream_server.optimizer.rule import OptimizerRule
from mavstream_server.optimizer.situation import Situation


def _inside_classes(policy: str, options: Mapping[str, Any] | None = None) -> SchedulerSettings:
    """Return CQC over a policy, with sources that read ahead of it.

    Sources that a class serves in turn would let each of its queries have as many rows as the others: what
    the inner policy prefers can only go ahead where its rows have been read.
    """
    return SchedulerSettings(
        policy="cqc",
        options={"inner": {"policy": policy, "options": dict(options or {})}},
        sources=SourceService.BETWEEN_SLICES,
    )


CANDIDATES: Mapping[Objective, Sequence[SchedulerSettings]] = {
    # Classes by priority; inside one, who answers most per time.
    Objective.LATENCY: (
        DEFAULT_SCHEDULER,
        SchedulerSettings(policy="cqc"),
        SchedulerSettings(policy="abd"),
    ),
    # Inside a class, who releases most memory per time (MavStream thesis, 6.3; CAPE).
    Objective.MEMORY: (_inside_classes("segment", {"answers": "freed"}), _inside_classes("chain")),
    # Inside a class, the path that takes in most tuples per time; then whole queries in long trains.
    Objective.THROUGHPUT: (_inside_classes("path_capacity"), DEFAULT_SCHEDULER),
}
"""By what is missed, the policies to try, in order. All keep classes apart: what is done for one class must
not cost a more important one its share."""


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
        """Go by the target of the most important class whose miss is most severe.

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
                what=f"switch from {_named(situation.scheduler)} to {_named(settings)}",
                why=target.told(worst.query),
                priority=worst.query.priority,
                queries=tuple(
                    watched.query.id for watched, other in missed if other.objective is target.objective
                ),
            )


def _named(settings: SchedulerSettings) -> str:
    """Return a policy's name, and that of the one inside it."""
    inner = settings.options.get("inner")
    return f"{settings.policy} over {inner['policy']}" if isinstance(inner, Mapping) else settings.policy
