"""Rule that migrates queries to cheaper equivalent plans."""

from __future__ import annotations

from collections.abc import Iterator

from mavstream_server.optimizer.change import PlanChange, Proposal
from mavstream_server.optimizer.monitor import Objective, Watched
from mavstream_server.optimizer.rule import OptimizerRule
from mavstream_server.optimizer.situation import Situation
from mavstream_server.planning.rewriting.choice import PlanChoice

LEAST_SAVING = 0.2
"""Minimum relative saving of another plan: estimates are no more precise, and a migration costs work."""


class AlternatePlanRule(OptimizerRule):
    """Proposes equivalent plans with a lower estimated cost, based on measurements."""

    name = "plan"
    about = (
        "migrates a query that misses a target, or an expensive query of the same or a lower class, "
        "to an equivalent plan that costs at least 20 % less"
    )

    def propose(self, situation: Situation) -> Iterator[Proposal]:
        """Propose plans for the queries that miss their targets first, then for the busiest queries."""
        missed = situation.monitor.missed()
        if not missed:
            return
        worst, target = missed[0]
        by_memory = target.objective is Objective.MEMORY
        for watched in _candidates(situation, worst, [one for one, _ in missed], by_memory):
            id_ = watched.query.id
            choice = situation.alternates[id_]
            if (choice.saving_of_memory if by_memory else choice.saving) < LEAST_SAVING:
                continue
            yield Proposal(
                rule=self.name,
                change=PlanChange(id_, choice.cheapest.plan),
                undo=PlanChange(id_, choice.running.plan),
                what=f"migrate query {id_} to another plan: {'; '.join(map(str, choice.cheapest.steps))}",
                why=f"{target.describe(worst.query)}; {_compared(choice, by_memory)}",
                queries=tuple(dict.fromkeys((worst.query.id, id_))),
                priority=worst.query.priority,
            )


def _candidates(
    situation: Situation, worst: Watched, missed: list[Watched], by_memory: bool
) -> Iterator[Watched]:
    """Yield queries with a known alternate plan and no migration under way.

    Queries of more important classes are never touched for the sake of others. Memory is used by each query
    alone, so for memory targets only the queries that miss them are considered.
    """
    known = [
        watched
        for id_, watched in situation.monitor.queries.items()
        if id_ in situation.alternates and id_ not in situation.migrating
    ]
    missing = {one.query.id: one for one in missed}
    yield from (one for one in missing.values() if one in known)
    if by_memory:
        return
    others = [one for one in known if one.query.id not in missing]
    competing = [one for one in others if one.query.priority <= worst.query.priority]
    yield from sorted(
        competing, key=lambda one: (-situation.alternates[one.query.id].running.cost, one.query.id)
    )


def _compared(choice: PlanChoice, by_memory: bool) -> str:
    before, after = choice.running, choice.cheapest
    if by_memory:
        return f"the other plan would use {after.memory:.4g} bytes instead of {before.memory:.4g}"
    return (
        f"the other plan would cost {after.cost / 1e6:.4g} ms per second instead of {before.cost / 1e6:.4g}"
    )
