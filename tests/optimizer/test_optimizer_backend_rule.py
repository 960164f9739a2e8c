"""The rule that proposes Spark, on scripted situations: for which query, and that it changes nothing."""

from __future__ import annotations

from tests.support.optimizer.scripted_queries import LATENCY, MEMORY, PACE, ScriptedQuery

from mavstream_protocol.scheduling import DEFAULT_SCHEDULER
from mavstream_server.engine.process.messages import WeighQuery
from mavstream_server.optimizer.change import Change
from mavstream_server.optimizer.journal import Outcome
from mavstream_server.optimizer.monitor import Monitor
from mavstream_server.optimizer.optimizer import Optimizer
from mavstream_server.optimizer.rules.backend import MoveRule
from mavstream_server.optimizer.rules.rank import RankRule
from mavstream_server.optimizer.situation import Situation


class World:
    """Queries with scripted metrics, and an optimizer that first proposes and then weighs."""

    def __init__(self, *queries: ScriptedQuery, movable: set[str]) -> None:
        self.queries = queries
        self.movable = movable
        self.monitor = Monitor(seconds=3, patience=1)
        self.optimizer = Optimizer([MoveRule(), RankRule()], PACE)
        self.now = 0.0

    def situation(self, latency_ms: float) -> Situation:
        self.now += 1
        for query in self.queries:
            query.answer(100, latency_ms)
        self.monitor.observe([query.observed() for query in self.queries], self.now)
        return Situation(
            self.now,
            self.monitor,
            DEFAULT_SCHEDULER,
            {},
            class_sizes={"urgent": 5},
            could_move=self.movable.__contains__,
        )

    def proposed(self) -> list[str]:
        return [one.what for one in MoveRule().propose(self.situation(50))]

    def decide(self, latency_ms: float = 50) -> Change | None:
        return self.optimizer.decide(self.situation(latency_ms))


def query(id_: str, priority: int = 5, qos: dict[str, object] = LATENCY) -> ScriptedQuery:
    return ScriptedQuery(id_, "urgent", priority, qos)


def test_the_query_that_misses_its_target_is_proposed_first() -> None:
    both = query("q"), query("less", 1, {"max_loss": "1%"})
    assert World(*both, movable={"q", "less"}).proposed() == ["run query q with backend 'spark' instead"]
    assert World(*both, movable={"less"}).proposed() == ["run query less with backend 'spark' instead"]
    assert World(*both, movable=set()).proposed() == []


def test_more_important_queries_make_no_room_and_memory_is_of_each_query_alone() -> None:
    above = query("above", 9, {"max_loss": "1%"})
    assert World(query("q"), above, movable={"above"}).proposed() == []
    large = ScriptedQuery("large", "urgent", 5, MEMORY, held=2_000_000)
    other = query("other", 1, {"max_loss": "1%"})
    assert World(large, other, movable={"other"}).proposed() == []


def test_nothing_is_proposed_while_targets_are_kept() -> None:
    world = World(query("q"), movable={"q"})
    assert world.decide(latency_ms=1) is None
    assert not world.optimizer.journal.made


def test_a_proposal_is_noted_once_and_the_next_rule_acts() -> None:
    world = World(query("q"), movable={"q"})
    assert world.decide() == WeighQuery("q", 2)
    while world.now < 20:
        world.decide()
    noted = [one for one in world.optimizer.journal if one.proposal.rule == "backend"]
    assert [(one.outcome, one.proposal.change, one.ended) for one in noted] == [(Outcome.PROPOSED, None, 1.0)]
    assert noted[0].proposal.why == "latency of query q in class urgent: mean is 50, the target is 10"
    while world.now < 60:
        world.decide(latency_ms=1)
    world.decide()
    for _ in range(3):
        world.decide()
    assert world.optimizer.journal.outcomes["backend", Outcome.PROPOSED] == 2
