"""Rule that switches the scheduling policy, by a table from the missed objective to suitable policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mavstream_protocol.scheduling import DEFAULT_SCHEDULER, SchedulerSettings, SourceService
from mavstream_server.engine.process.messages import SwitchPolicy
from mavstream_server.optimizer.change import Proposal
from mavstream_server.optimizer.monitor import Objective
from mavstream_server.optimizer.rule import OptimizerRule
from mavstream_server.optimizer.situation import Situation


def _inside_classes(policy: str, options: Mapping[str, Any] | None = None) -> SchedulerSettings:
    """Return CQC over an inner policy, with sources that read ahead of it.

    If a class served its sources in turn, all its queries would get equally many rows: the inner policy can
    only prefer a query whose rows have already been read.
    """
    return SchedulerSettings(
        policy="cqc",
        options={"inner": {"policy": policy, "options": dict(options or {})}},
        sources=SourceService.BETWEEN_SLICES,
    )


CANDIDATES: Mapping[Objective, Sequence[SchedulerSettings]] = {
    # Classes by priority; inside a class, the highest output rate.
    Objective.LATENCY: (
        DEFAULT_SCHEDULER,
        SchedulerSettings(policy="cqc"),
        SchedulerSettings(policy="abd"),
    ),
    # Inside a class, the highest rate of memory release (MavStream thesis, 6.3; CAPE).
    Objective.MEMORY: (_inside_classes("segment", {"answers": "freed"}), _inside_classes("chain")),
    # Inside a class, the path with the highest throughput; then whole queries in long trains.
    Objective.THROUGHPUT: (_inside_classes("path_capacity"), DEFAULT_SCHEDULER),
}
"""Policies to try, in order, by missed objective. All of them share the time between classes by priority:
what helps one class must not cost a more important one its share.
"""


class SwitchPolicyRule(OptimizerRule):
    """Switches to a policy that suits the missed objective.

    Only policies that precede the current one in the table are tried: if a policy that suits the
    objective misses it, the engine is overloaded, and a similar policy would not help.
    """

    name = "policy"
    about = "switches to a scheduling policy that suits the missed objective, unless such a policy is active"

    def __init__(self) -> None:
        self.preferred: SchedulerSettings | None = None
        """Policy to try before those of the table, whatever the objective."""

    def propose(self, situation: Situation) -> Iterator[Proposal]:
        """Propose policies for the most severe miss of the most important class.

        A switch loses no rows and is easily undone, so it does not wait until the target is missed.
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
                change=SwitchPolicy(settings),
                undo=SwitchPolicy(situation.scheduler),
                what=f"switch from {_policy_name(situation.scheduler)} to {_policy_name(settings)}",
                why=target.describe(worst.query),
                priority=worst.query.priority,
                queries=tuple(
                    watched.query.id for watched, other in missed if other.objective is target.objective
                ),
            )


def _policy_name(settings: SchedulerSettings) -> str:
    """Return a policy's name, with that of its inner policy."""
    inner = settings.options.get("inner")
    return f"{settings.policy} over {inner['policy']}" if isinstance(inner, Mapping) else settings.policy
