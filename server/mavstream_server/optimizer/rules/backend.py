"""Rule that proposes to users that a query runs on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from mavstream_server.optimizer.change import Proposal
from mavstream_server.optimizer.monitor import Objective, Watched
from mavstream_server.optimizer.rule import OptimizerRule
from mavstream_server.optimizer.situation import Situation

_MOST_CHECKED = 10


class MoveRule(OptimizerRule):
    """Proposes that a query is registered with backend `spark`; it moves none by itself.

    A query there starts anew, and a cluster has its price, so that is for users to decide.
    """

    name = "backend"
    about = (
        "proposes to run a query that misses a target, or one of the same or a lower class, with backend "
        "'spark' if it can run there; it never does so by itself"
    )

    def propose(self, situation: Situation) -> Iterator[Proposal]:
        """Propose the first query that could move: one that misses a target, or a less important one."""
        missed = situation.monitor.missed()
        if not missed:
            return
        worst, target = missed[0]
        by_memory = target.objective is Objective.MEMORY
        candidates = _candidates(situation, worst, [one for one, _ in missed], by_memory)
        for watched in islice(candidates, _MOST_CHECKED):
            id_ = watched.query.id
            if situation.could_move(id_):
                yield Proposal(
                    rule=self.name,
                    change=None,
                    undo=None,
                    what=f"run query {id_} with backend 'spark' instead",
                    why=target.describe(worst.query),
                    queries=tuple(dict.fromkeys((worst.query.id, id_))),
                    priority=worst.query.priority,
                )
                return


def _candidates(
    situation: Situation, worst: Watched, missed: list[Watched], by_memory: bool
) -> Iterator[Watched]:
    """Yield the queries that miss targets, then others that could make room for the worst one."""
    missing = {one.query.id: one for one in missed}
    yield from missing.values()
    if not by_memory:  # memory is used by each query alone
        others = [one for id_, one in situation.monitor.queries.items() if id_ not in missing]
        competing = [one for one in others if one.query.priority <= worst.query.priority]
        yield from sorted(competing, key=lambda one: (one.query.priority, one.query.id))
