"""The rule that migrates plans, on scripted situations: which query, when, and how it is judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.optimizer.scripted_queries import LATENCY, MEMORY, PACE, ScriptedQuery

from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.scheduling import DEFAULT_SCHEDULER
from mavstream_server.optimizer.change import PlanChange
from mavstream_server.optimizer.journal import Outcome
from mavstream_server.optimizer.monitor import Monitor
from mavstream_server.optimizer.optimizer import Optimizer
from mavstream_server.optimizer.rules.plan import AlternatePlanRule
from mavstream_server.optimizer.situation import Situation
from mavstream_server.planning.rewriting import Alternate, PlanChoice, RewriteStep


def plan(where: str) -> Plan:
    nodes = {
        "in": {"op": "source", "stream": "readings"},
        "s": {"op": "select", "input": "in", "where": where},
    }
    return Plan.parse({"root": "s", "nodes": nodes})


OLD, NEW = plan("a > 1 AND b > 1"), plan("b > 1 AND a > 1")
STEP = RewriteStep("reorder selects", "s", "b first")


def choice(cost: float, cheapest: float, memory: float = 1000.0, less: float = 1000.0) -> PlanChoice:
    return PlanChoice(Alternate(OLD, cost, memory, ()), Alternate(NEW, cheapest, less, (STEP,)))


class World:
    """Queries with scripted metrics, and an optimizer with this rule alone."""

    def __init__(self, *queries: ScriptedQuery) -> None:
        self.queries = queries
        self.monitor = Monitor(seconds=3, patience=1)
        self.optimizer = Optimizer([AlternatePlanRule()], PACE)
        self.now = 0.0

    def situation(self, alternates: Mapping[str, PlanChoice], **more: Any) -> Situation:
        self.now += 1
        for query in self.queries:
            if query.answers:
                query.answer(100, query.total / query.answers / 1e6)
        self.monitor.observe([query.observed() for query in self.queries], self.now)
        return Situation(self.now, self.monitor, DEFAULT_SCHEDULER, {}, alternates=alternates, **more)

    def proposed(self, alternates: Mapping[str, PlanChoice], **more: Any) -> list[str]:
        """Return the queries that the rule would migrate, in order."""
        made = list(AlternatePlanRule().propose(self.situation(alternates, **more)))
        changes = [proposal.change for proposal in made]
        return [change.query for change in changes if isinstance(change, PlanChange)]


def slow(id_: str, priority: int = 5, latency_ms: float = 50) -> ScriptedQuery:
    query = ScriptedQuery(id_, "urgent", priority, LATENCY)
    query.answer(100, latency_ms)
    return query


def test_nothing_is_proposed_while_targets_are_kept() -> None:
    assert World(slow("q", latency_ms=1)).proposed({"q": choice(100, 10)}) == []


def test_a_query_that_misses_its_target_gets_a_plan_that_costs_a_fifth_less() -> None:
    world = World(slow("q"))
    assert world.proposed({"q": choice(100, 81)}) == []
    assert world.proposed({"q": choice(100, 79)}) == ["q"]
    (proposal,) = AlternatePlanRule().propose(world.situation({"q": choice(4e8, 1e8)}))
    assert (proposal.change, proposal.undo) == (PlanChange("q", NEW), PlanChange("q", OLD))
    assert proposal.what == "migrate query q to another plan: reorder selects at s: b first"
    assert "the target is 10; the other plan would cost 100 ms per second instead of 400" in proposal.why


def test_costly_queries_of_lower_classes_come_next_and_none_of_higher_classes() -> None:
    others = [ScriptedQuery(id_, "low", 1) for id_ in ("light", "heavy")]
    higher = ScriptedQuery("higher", "top", 9)
    world = World(slow("q"), *others, higher)
    alternates = {
        "light": choice(10, 1),
        "heavy": choice(1000, 100),
        "higher": choice(9999, 1),
        "q": choice(5, 1),
        "gone": choice(5, 1),
    }
    assert world.proposed(alternates) == ["q", "heavy", "light"]
    assert world.proposed(alternates, migrating=frozenset({"q", "heavy"})) == ["light"]


def test_for_a_memory_target_only_plans_that_hold_less_are_proposed() -> None:
    query, other = ScriptedQuery("q", qos=MEMORY, held=5_000_000), ScriptedQuery("other")
    world = World(query, other)
    cheap, small = choice(100, 1), choice(100, 90, 1000, 500)
    assert world.proposed({"q": cheap, "other": small}) == []
    assert world.proposed({"q": small, "other": small}) == ["q"]


def test_a_migration_is_judged_after_it_is_done_and_undone_if_it_does_not_help() -> None:
    world = World(slow("q"))
    alternates = {"q": choice(100, 10)}
    assert world.optimizer.decide(world.situation(alternates)) == PlanChange("q", NEW)
    for _ in range(20):  # the new operators are warming up
        under_way = world.situation({}, migrating=frozenset({"q"}))
        assert world.optimizer.decide(under_way) is None
    decisions = [world.optimizer.decide(world.situation({})) for _ in range(6)]
    assert decisions == [None, None, None, None, PlanChange("q", OLD), None]
    (decision,) = world.optimizer.journal
    assert decision.outcome is Outcome.UNDONE
