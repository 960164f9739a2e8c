"""Rule that raises the weight of a query inside its class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from mavstream_server.engine.process.messages import WeighQuery
from mavstream_server.optimizer.change import Proposal
from mavstream_server.optimizer.monitor import Objective
from mavstream_server.optimizer.rule import OptimizerRule
from mavstream_server.optimizer.situation import Situation
from mavstream_server.scheduling.policy import Level
from mavstream_server.scheduling.registry import POLICIES, weighs

HEAVIEST = 8
"""Highest weight of a query; another query of its class then gets a ninth of the turns."""


class RankRule(OptimizerRule):
    """Doubles the weight of a query in its class, at the expense of the class's other queries only.

    Applicable if the policy separates classes (or there is only one) and uses weights inside them, and if
    most queries of the class meet their targets and so can wait longer.
    """

    name = "rank"
    about = (
        "raises the weight of a query that misses its latency or throughput target, "
        "if the policy uses weights and most other queries of the class meet their targets"
    )

    def propose(self, situation: Situation) -> Iterator[Proposal]:
        """Propose for the most important class and its most severe miss first."""
        if not _inside_classes(situation):
            return
        slow = [one for one in situation.monitor.missed() if one[1].objective is not Objective.MEMORY]
        missing = Counter(class_name for _, class_name in {(w.query.id, w.query.class_name) for w, _ in slow})
        for watched, target in slow:
            query, now = watched.query, situation.weights.get(watched.query.id, 1)
            others = situation.class_sizes.get(query.class_name, 0) - missing[query.class_name]
            if others < missing[query.class_name] or now >= HEAVIEST:
                continue
            yield Proposal(
                rule=self.name,
                change=WeighQuery(query.id, 2 * now),
                undo=WeighQuery(query.id, now),
                what=f"raise the weight of query {query.id} in class {query.class_name} to {2 * now}",
                why=target.describe(query),
                priority=query.priority,
                queries=(query.id,),
            )

    def relax(self, situation: Situation) -> Iterator[Proposal]:
        """Halve the highest weight first."""
        for id_, now in sorted(situation.weights.items(), key=lambda one: (-one[1], one[0])):
            if now > 1:
                yield Proposal(
                    rule=self.name,
                    change=WeighQuery(id_, now // 2),
                    undo=WeighQuery(id_, now),
                    what=f"lower the weight of query {id_} to {now // 2}",
                    why="all targets are met",
                    queries=(id_,),
                )


def _inside_classes(situation: Situation) -> bool:
    """Whether weights have an effect now and take nothing from other classes."""
    policy, options = situation.scheduler.policy, situation.scheduler.options
    apart = POLICIES[policy].level is Level.CLASS or len(situation.class_sizes) == 1
    return apart and weighs(policy, options)
