"""Rule that sheds rows of queries that allow it, the least important first and no longer than needed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from mavstream_server.engine.process.messages import ShedRows
from mavstream_server.optimizer.change import Proposal, combined
from mavstream_server.optimizer.monitor import Watched
from mavstream_server.optimizer.rule import OptimizerRule
from mavstream_server.optimizer.situation import Situation

_STEPS = 4  # steps from the full allowed share back to zero


class ShedRule(OptimizerRule):
    """Sheds the full share that the queries of a class allow, then reduces it in quarters.

    Small steps up would be judged, and undone, while the backlog is still growing. Excess shedding is found
    while it is reduced, which begins as soon as all targets have been met for a while.
    """

    name = "shedding"
    about = (
        "sheds rows of the least important class that allows loss, "
        "and reduces shedding once all targets are met"
    )

    def propose(self, situation: Situation) -> Iterator[Proposal]:
        """Propose the lowest class first, never for the sake of a less important class."""
        for priority, missed in groupby(situation.monitor.missed(), lambda one: one[0].query.priority):
            worst, target = next(missed)
            for (lower, class_name), members in groupby(_sheddable(situation), _class):
                shedding = [one for one in members if _shed(situation, one) < one.query.qos.max_loss]
                if not shedding or lower > priority:
                    continue
                most = max(one.query.qos.max_loss for one in shedding)
                yield Proposal(
                    rule=self.name,
                    change=combined([ShedRows(one.query.id, one.query.qos.max_loss) for one in shedding]),
                    undo=combined([ShedRows(one.query.id, _shed(situation, one)) for one in shedding]),
                    what=f"shed up to {most:.2%} of the rows of {_names(shedding)} in class {class_name}",
                    why=target.describe(worst.query),
                    queries=tuple(dict.fromkeys([worst.query.id, *(one.query.id for one in shedding)])),
                    priority=priority,
                )

    def relax(self, situation: Situation) -> Iterator[Proposal]:
        """Reduce shedding by a quarter, for the most important class first."""
        current = [one for one in _sheddable(situation) if _shed(situation, one) > 0]
        for (_, class_name), members in groupby(reversed(current), _class):
            shedding = list(members)
            less = [_less(situation, one) for one in shedding]
            yield Proposal(
                rule=self.name,
                change=combined(
                    [ShedRows(one.query.id, share) for one, share in zip(shedding, less, strict=True)]
                ),
                undo=combined([ShedRows(one.query.id, _shed(situation, one)) for one in shedding]),
                what=f"shed only {max(less):.2%} of the rows of {_names(shedding)} in class {class_name}",
                why="all targets are met",
                queries=tuple(one.query.id for one in shedding),
            )


def _sheddable(situation: Situation) -> list[Watched]:
    """Return the queries that allow shedding, the least important first."""
    known = [one for one in situation.monitor.queries.values() if one.query.qos.max_loss > 0]
    return sorted(known, key=lambda one: (*_class(one), one.query.id))


def _class(watched: Watched) -> tuple[int, str]:
    return watched.query.priority, watched.query.class_name


def _shed(situation: Situation, watched: Watched) -> float:
    return situation.shed.get(watched.query.id, 0.0)


def _less(situation: Situation, watched: Watched) -> float:
    return max(0.0, round(_shed(situation, watched) - watched.query.qos.max_loss / _STEPS, 9))


def _names(queries: list[Watched]) -> str:
    return f"query {queries[0].query.id}" if len(queries) == 1 else f"{len(queries)} queries"
