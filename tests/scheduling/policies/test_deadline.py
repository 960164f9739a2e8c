"""Deadline: least laxity first, late units by class and age, nobody starves."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest
from tests.conftest import MakeStream

from mavstream_server.engine.engine import Engine
from mavstream_server.scheduling.statistics import Statistics
from mavstream_server.scheduling.view import Slice
from mavstream_server.simulation import simulate
from mavstream_server.simulation.workload.model import Workload
from mavstream_server.testing import ManualClock, PlanRun, ScriptedNetwork, ScriptedQuery, Step, run_plan

US, MS = 1_000, 1_000_000


def network(**options: Any) -> ScriptedNetwork:
    return ScriptedNetwork("deadline", options)


def add(
    network: ScriptedNetwork,
    id_: str,
    target: int | None = None,
    class_name: str = "default",
    *,
    cost: float = 1000.0,
    tuples: int = 10,
) -> ScriptedQuery:
    """Add a query of one operator and an output, with a latency target (ns) and waiting tuples."""
    query = network.add(id_, [Step("select", 1.0, cost)], class_name)
    network.retarget(id_, target)
    if tuples:
        network.arrive(id_, tuples)
    return query


def order(slices: list[Slice]) -> list[str]:
    """Return the queries that slices were of; several in a row count once."""
    return [id_ for id_, _ in groupby(slice_.operators[0].query.id for slice_ in slices)]


def take(network: ScriptedNetwork, slices: int) -> list[str]:
    """Run so many slices and return the queries that they were of."""
    taken = [network.step() for _ in range(slices)]
    return order([slice_ for slice_ in taken if slice_ is not None])


# Least laxity


def test_the_smallest_target_goes_first_among_tuples_of_one_age() -> None:
    line = network()
    for id_, target in (("slow", 2000 * MS), ("fast", 5 * MS), ("middle", 50 * MS)):
        add(line, id_, target)
    assert order(line.run()) == ["fast", "middle", "slow"]


def test_age_counts_as_much_as_the_target() -> None:
    line = network()
    add(line, "old", 50 * MS)
    line.now = 30 * MS
    add(line, "young and hurried", 10 * MS)
    add(line, "young", 30 * MS)
    # Deadlines: 50, 40 and 60 ms.
    assert order(line.run()) == ["young and hurried", "old", "young"]


def test_what_takes_longer_must_start_earlier() -> None:
    line = network()
    add(line, "cheap", 50 * MS, tuples=1)
    dear = add(line, "dear", 52 * MS, cost=5 * MS, tuples=1)
    assert order(line.run()) == ["dear", "cheap"]
    line.measure(dear.operators[0], Statistics(cost_per_tuple=1000.0))
    for id_ in ("cheap", "dear"):
        line.arrive(id_, 1)
    assert order(line.run()) == ["cheap", "dear"]


def test_calls_count_where_they_cost_more_than_a_tuple() -> None:
    line = network()
    add(line, "cheap", 50 * MS, tuples=1)
    dear = add(line, "dear", 52 * MS, tuples=0)
    line.measure(dear.operators[0], Statistics(cost_per_call=5 * MS, cost_per_tuple=2000.0))
    line.arrive("dear", 1)
    assert order(line.run()) == ["dear", "cheap"]


def test_the_cost_to_the_answer_of_a_shared_pipeline_includes_its_members() -> None:
    line = network()
    add(line, "alone", 50 * MS, tuples=0)
    pipeline = line.add_shared("pipeline", [Step("select", 1.0, 1000)], [[Step("map", 1.0, 5.0 * MS)]])
    line.retarget("pipeline", 52 * MS)
    line.measure(line.queries["pipeline/0"].operators[0], Statistics(5.0 * MS, 5.0 * MS))
    for id_ in ("alone", "pipeline"):
        line.arrive(id_, 1)
    assert take(line, 2) == [pipeline.id, "alone"]


def test_queries_without_a_target_have_the_default() -> None:
    line = network(default_target_ms=20)
    for id_, target in (("none", None), ("later", 21 * MS), ("sooner", 19 * MS)):
        add(line, id_, target)
    assert order(line.run()) == ["sooner", "none", "later"]


def test_a_changed_target_counts_for_tuples_that_wait() -> None:
    line = network()
    add(line, "one", 10 * MS)
    add(line, "other", 20 * MS)
    line.retarget("one", 30 * MS)
    assert order(line.run()) == ["other", "one"]
    for id_ in ("one", "other"):
        line.arrive(id_, 1)
    line.queries["one"].latency_target = 1 * MS  # that of its class, which has changed
    line.set_priority("default", 1)
    assert order(line.run()) == ["one", "other"]


# Turns


def test_a_turn_runs_all_operators_of_a_query_or_one() -> None:
    for unit, expected in (
        ("query", [["select", "map", "output"]]),
        ("operator", [["select"], ["map"], ["output"]]),
    ):
        line = network(unit=unit)
        line.add("q", [("select", 1.0), ("map", 1.0)])
        line.arrive("q", 10)
        assert [[one.operator for one in slice_.operators] for slice_ in line.run()] == expected


def test_a_turn_is_bounded_by_the_measured_cost_to_the_answer() -> None:
    line = network(turn_us=500)
    add(line, "q", cost=9_900, tuples=1000)  # and 100 ns for the output
    assert {slice_.tuples for slice_ in line.run()} == {50}
    line = network(turn_us=None)
    add(line, "q", tuples=1000)
    assert [slice_.tuples for slice_ in line.run()] == [None]


def test_what_a_bounded_turn_leaves_above_is_finished_before_more_is_taken_in() -> None:
    line = network(turn_us=100)
    line.add("q", [Step("join", 3.0, 1000), Step("map", 1.0, 10)])
    line.arrive("q", 1000)
    most = 0
    while line.step() is not None:
        most = max(most, sum(one.waiting for one in line.queries["q"].operators if not one.leaf))
    assert line.answers["q"] == 3000
    assert most < 3000 / 4


def test_the_oldest_tuple_may_be_anywhere_in_the_query() -> None:
    line = network()
    join = {"l": Step("select"), "r": Step("select"), "both": Step("join", inputs=("l", "r"))}
    line.add("pairs", join)
    line.retarget("pairs", 40 * MS)
    line.now = 10 * MS
    add(line, "other", 25 * MS)
    line.arrive("pairs", 1, leaf=0)
    line.queries["pairs"].leaves[1].put(1, 0)  # it has arrived earlier and comes later
    line.policy.arrived(line.queries["pairs"].leaves[1], line.now)
    line.retarget("other", 31 * MS)
    assert take(line, 1) == ["pairs"]


# Late units


def late(line: ScriptedNetwork, *queries: tuple[str, str]) -> None:
    """Add queries that are late by the time they are first looked at."""
    for id_, class_name in queries:
        add(line, id_, 1 * MS, class_name)
        line.now += 1 * US
    line.now += 50 * MS


def test_late_units_go_by_class_and_then_by_age() -> None:
    line = network()
    line.set_priority("high", 6)
    late(line, ("low 1", "default"), ("high 1", "high"), ("low 2", "default"), ("high 2", "high"))
    assert order(line.run()) == ["high 1", "high 2", "low 1", "low 2"]


def test_a_late_unit_never_delays_what_can_still_be_kept_in_more_important_classes() -> None:
    line = network()
    for class_name, priority in (("high", 6), ("middle", 3), ("low", 1)):
        line.set_priority(class_name, priority)
    late(line, ("late", "middle"))
    for class_name in ("high", "low"):
        add(line, class_name, 500 * MS, class_name)
    assert order(line.run()) == ["high", "late", "low"]
    late(line, ("late again", "middle"))
    add(line, "high again", 500 * MS, "high")
    add(line, "in time", 100 * MS, "middle")
    assert order(line.run()) == ["in time", "high again", "late again"]


def test_a_late_unit_delays_others_of_its_class_by_a_quarter_of_their_slack() -> None:
    for age, expected in ((24, ["late", "in time"]), (26, ["in time", "late"])):
        line = network()
        late(line, ("late", "default"))
        add(line, "in time", 100 * MS)
        line.now += age * MS
        assert order(line.run()) == expected


def test_a_source_may_wait_while_a_class_of_another_priority_is_late() -> None:
    line = network()
    line.set_priority("high", 6)
    important = add(line, "important", None, "high", tuples=0)
    add(line, "late", 5 * MS, "low", tuples=1_000_000)
    leaf = important.operators[0]
    line.step()
    assert line.policy.may_wait(leaf) == 0
    while line.now < 20 * MS:
        line.step()
    assert line.policy.may_wait(leaf) == 10 * MS
    add(line, "other", 5 * MS, "low", tuples=0)
    assert line.policy.may_wait(line.queries["late"].operators[0]) == 0, "not because of its own class"


def test_classes_change_places_with_their_priorities() -> None:
    line = network()
    line.set_priority("a", 6)
    line.set_priority("b", 3)
    late(line, ("of a", "a"), ("of b", "b"))
    line.set_priority("b", 9)
    assert order(line.run()) == ["of b", "of a"]


def flooded(line: ScriptedNetwork, high: int) -> int:
    """Return how long a late query of class low waits while class high could take all the time (ns)."""
    line.set_priority("high", 6)
    late(line, ("low", "low"))
    begin = line.now
    for number in range(high):
        add(line, f"high {number}", 1 * MS, "high", tuples=0)
    while not line.answers["low"]:
        for number in range(high):
            line.arrive(f"high {number}", 200)  # 0.22 ms each
        line.step()
        assert line.now - begin < 1000 * MS, "class low has starved"
    return line.now - begin


def test_no_late_unit_starves_behind_a_more_important_class() -> None:
    turn, priorities = 1.5 * MS, 2
    for high in (1, 20):
        assert flooded(network(), high) <= priorities * (10 * MS + 2 * turn)
    assert flooded(network(patience_us=2000), 20) <= priorities * (2 * MS + 2 * turn)
    assert flooded(network(patience_us=100_000), 20) > 50 * MS


def test_no_late_unit_starves_behind_those_of_its_class_that_are_in_time() -> None:
    line = network()
    late(line, ("late", "default"))
    begin = line.now
    for number in range(3):
        add(line, f"q{number}", 500 * MS, tuples=0)
    while not line.answers["late"]:
        for number in range(3):
            line.arrive(f"q{number}", 200)
        line.step()
        assert line.now - begin <= 13 * MS
    assert begin < line.now


def test_late_classes_have_a_guaranteed_share_of_the_time() -> None:
    line = network()
    for class_name, priority in (("high", 6), ("middle", 3), ("low", 1)):
        line.set_priority(class_name, priority)
        add(line, class_name, 1 * MS, class_name, tuples=200_000)
    line.now += 50 * MS
    while line.answers["high"] < 200_000:
        line.step()
    both = line.answers["middle"] + line.answers["low"]
    assert 1.5 / 11.5 <= both / (both + 200_000) <= 1.5 / 10
    assert line.answers["low"] == pytest.approx(both / 2, rel=0.1)


# In the engine

HOT = {
    "in": {"op": "source", "stream": "readings"},
    "hot": {"op": "select", "input": "in", "where": "temp > 20"},
}


def steps_to_answers(engine: Engine, runs: list[PlanRun]) -> list[str]:
    """Step the engine until it is idle; return the queries in the order of their first answers."""
    answered: dict[str, None] = {}
    while engine.step():
        answered |= {run.query.id: None for run in runs if run.answers()}
    return list(answered)


def test_rows_that_wait_in_the_log_count_by_age_and_target(stream: MakeStream) -> None:
    engine, runs = Engine(ManualClock(), "deadline"), list[PlanRun]()
    engine.set_class("hurried", 1, 50_000)
    for name, target in (("slow", 80_000), ("fast", 20_000), ("classed", None)):
        readings = stream(name, "temp int")
        engine.attach(name, readings.reader)
        plan = {**HOT, "in": {"op": "source", "stream": name}}
        runs.append(
            run_plan(
                plan, "hot", [readings], engine=engine, id_=name, class_name="hurried", latency_target=target
            )
        )
        readings.rows((30,))
    assert steps_to_answers(engine, runs) == ["fast", "classed", "slow"]


def test_a_paused_query_does_not_keep_the_engine_busy(stream: MakeStream) -> None:
    readings = stream("readings", "temp int")
    run = run_plan(HOT, "hot", [readings])
    run.engine.switch("deadline")
    readings.rows((30,))
    run.engine.pause("q")
    assert run.engine.run(100) < 100
    run.engine.resume("q")
    readings.rows((31,))
    assert run.rows() == [(31,)]


# As the inner policy, and compared with others


def test_it_decides_inside_the_classes_of_cqc() -> None:
    line = ScriptedNetwork("cqc", {"inner": {"policy": "deadline"}})
    line.set_priority("high", 6)
    for class_name in ("low", "high"):
        for id_, target in (("slow", 500 * MS), ("fast", 5 * MS)):
            add(line, f"{class_name} {id_}", target, class_name)
    assert order(line.run()) == ["high fast", "high slow", "low fast", "low slow"]


TARGETS_MS = (5, 9, 15, 26, 45, 78, 130, 230, 400, 690, 1200, 2000)


def workload(load: float) -> Workload:
    """Return twelve queries with targets from 5 ms to 2 s, in three classes regardless of target."""
    queries = [
        {
            "id": f"q{number}",
            "class": "abc"[number % 3],
            "latency_us": target * 1000,
            "operators": {
                "kept": {
                    "kind": "select",
                    "input": f"s{number}",
                    "cost_us": 100 * (1 + number % 4),
                    "selectivity": 0.5,
                },
                "made": {"kind": "project", "input": "kept", "cost_us": 100},
            },
        }
        for number, target in enumerate(TARGETS_MS)
    ]
    return Workload.model_validate(
        {
            "name": "targets",
            "seconds": 5,
            "utilisation": load,
            "classes": {"a": {"priority": 6}, "b": {"priority": 3}, "c": {"priority": 1}},
            "sources": {"cost_us": 5},
            "overheads": {"setup_us": 20},
            "streams": {"*": {"rate": 100}},
            "queries": queries,
        }
    )


@pytest.mark.parametrize("load", [0.7, 0.9, 0.95])
def test_below_capacity_it_keeps_more_targets_than_others(load: float) -> None:
    by_query = {"unit": "query"}
    others: dict[str, dict[str, Any]] = {
        "rr": by_query,
        "hr": {},
        "cqc": {"inner": {"policy": "rr", "options": by_query}},
    }

    def kept(policy: str, options: dict[str, Any]) -> float:
        shares = simulate(workload(load), policy, options, seed=3).targets_kept()
        assert len(shares) == len(TARGETS_MS)
        return sum(shares.values()) / len(shares)

    assert kept("deadline", {}) > max(kept(policy, options) for policy, options in others.items())
    assert kept("deadline", {}) > 0.99


def test_a_class_gives_its_target_to_queries_of_a_workload_without_their_own() -> None:
    model = workload(0.5)
    classes = {**model.classes, "b": model.classes["b"].model_copy(update={"latency_us": 7_000.0})}
    queries = [
        one.model_copy(update={"latency_us": None if one.class_ == "b" else 1.0}) for one in model.queries
    ]
    result = simulate(
        model.model_copy(update={"classes": classes, "queries": tuple(queries)}), "deadline", seconds=0.1
    )
    assert result.latency_targets == {f"q{n}": 7 * MS if n % 3 == 1 else 1 * US for n in range(12)}
