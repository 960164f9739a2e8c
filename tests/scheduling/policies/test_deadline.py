"""Deadline: least laxity first, in turns of bounded time."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conftest import MakeStream
from tests.support.scheduling.deadline import MS, US, add, network, order, take

from mavstream_server.engine.engine import Engine
from mavstream_server.scheduling.statistics import Statistics
from mavstream_server.simulation import simulate
from mavstream_server.simulation.workload.model import Workload
from mavstream_server.testing import ManualClock, PlanRun, ScriptedNetwork, Step, run_plan

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
