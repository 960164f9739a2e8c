"""Load shedding: queries that allow it lose rows, the least important first, no longer than needed."""

from __future__ import annotations

from collections.abc import Iterator

from mavstream_server.optimizer.change import Proposal, ShedRows
from mavstream_server.optimizer.monitor import Watched
from mavstream_server.optimizer.rule import Rule
from mavstream_server.optimizer.situation import Situation

_STEPS = 4  # from nothing to all that a query allows


class ShedRule(Rule):
    """Drops rows of queries that allow loss, a quarter of what they allow at a time."""

    name = "shedding"
    about = "drops rows of the least important queries that allow loss, and gives them back when all is well"

    def propose(self, situation: Situation) -> Iterator[Proposal]:
        """Begin with the lowest class; never for the sake of a class that is less important."""
        missed = situation.monitor.missed()
        if not missed:
            return
        worst, target = missed[0]
        for watched in _giving(situation):
            if watched.query.priority > worst.query.priority:
                return
            allowed, now = watched.query.qos.max_loss, situation.shed.get(watched.query.id, 0.0)
            share = min(allowed, now + allowed / _STEPS)
            if share <= now:
                continue
            yield Proposal(
                rule=self.name,
                change=ShedRows(watched.query.id, share),
                undo=ShedRows(watched.query.id, now),
                what=f"drop {share:.2%} of the rows of query {watched.query.id} (it allows {allowed:.2%})",
                why=(
                    f"{target.objective} of query {worst.query.id} in class {worst.query.class_name}: "
                    f"{target.statistic} is {target.measured:.4g}, the target {target.target:.4g}"
                ),
                queries=(worst.query.id, watched.query.id),
            )

    def relax(self, situation: Situation) -> Iterator[Proposal]:
        """Give back a step at a time, to the most important first."""
        for watched in reversed(_giving(situation)):
            now = situation.shed.get(watched.query.id, 0.0)
            if now <= 0:
                continue
            share = max(0.0, now - watched.query.qos.max_loss / _STEPS)
            share = 0.0 if share < 1e-9 else share
            yield Proposal(
                rule=self.name,
                change=ShedRows(watched.query.id, share),
                undo=ShedRows(watched.query.id, now),
                what=f"drop {share:.2%} instead of {now:.2%} of the rows of query {watched.query.id}",
                why="all targets are kept",
                queries=(watched.query.id,),
            )


def _giving(situation: Situation) -> list[Watched]:
    """Return the queries that allow loss, the least important first."""
    known = [one for one in situation.monitor.queries.values() if one.query.qos.max_loss > 0]
    return sorted(known, key=lambda one: (one.query.priority, one.query.id))
