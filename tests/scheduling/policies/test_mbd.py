"""MBD: queries in slots by class priority and cost, on several cores, with its modules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random

import pytest

from mavstream_server.scheduling.bases.query_level import loads
from mavstream_server.scheduling.mechanisms.broadcast_disk import multiplier, whole_slots
from mavstream_server.scheduling.statistics import Statistics
from mavstream_server.scheduling.view import OperatorKind, Report, Slice
from mavstream_server.testing import ScriptedNetwork, ScriptedOperator, ScriptedQuery, Step

PLAIN = {"inversion": "none", "selectivity": "none", "priority": "none"}


def network_of(
    queries: dict[str, tuple[str, float]], priorities: dict[str, int], **options: object
) -> ScriptedNetwork:
    """Queries with a class and a cost, of one operator that gives no answers; without modules."""
    network = ScriptedNetwork("mbd", {**PLAIN, **options})
    network.priorities.update(priorities)
    for id_, (class_name, cost) in queries.items():
        network.add(id_, [Step("select", 0.0, cost)], class_name)
    return network


def feed_all(network: ScriptedNetwork) -> None:
    """Let a tuple arrive for every query that has none and does not run."""
    for query in network.queries.values():
        if not query.leaves[0].waiting and not query.leaves[0].running:
            network.arrive(query.id, 1)


def turns(network: ScriptedNetwork, slices: int) -> list[str]:
    """Run slices while every query has tuples; returns the queries that ran."""
    found = []
    for _ in range(slices):
        feed_all(network)
        slice_ = network.step()
        assert slice_ is not None
        found.append(slice_.operators[0].query.id)
    return found


def shared(network: ScriptedNetwork, id_: str, below: ScriptedOperator, class_name: str) -> ScriptedQuery:
    """Admit a query that reads the output of an operator of another one."""
    query = ScriptedQuery(id_, class_name)
    number = 1000 * (1 + len(network.queries))
    output = ScriptedOperator(number, query, Step("output"), OperatorKind.OUTPUT, leaf=False)
    below.downstream.append(output)
    query.operators = [below, output]
    query.paths = [[below, output]]
    return network.add_query(query)


# Priorities


def test_fractions_become_chances_of_the_first_slot() -> None:
    # The dissertation's example: 1.7 and 1.3 have two slots each, the first with 0.7 and 0.3.
    assert whole_slots(1.7) == (2, pytest.approx(0.7))
    assert whole_slots(1.3) == (2, pytest.approx(0.3))
    assert whole_slots(2.0) == (2, 1.0)
    assert whole_slots(3 * (1 / 3)) == (1, pytest.approx(1.0))


def test_the_multiplier_makes_the_least_priority_one() -> None:
    # A class of priority 50 with costs of 10 and 40, one of priority 10 with 30 and 70: shares 10, 40, 3, 7.
    assert multiplier([10, 40, 3, 7], longest=1000) == pytest.approx(1 / 3)
    # 40 / 3 = 13.3 slots would be more than 8 allow.
    assert multiplier([10, 40, 3, 7], longest=8) == pytest.approx(8 / 40)


def test_the_cost_of_a_query_adds_up_over_its_sources() -> None:
    network = ScriptedNetwork("mbd")
    query = network.add(
        "q",
        {
            "left": Step("select", 0.5, 100),
            "right": Step("select", 0.25, 200),
            "join": Step("join", 2.0, 1000, ("left", "right")),
        },
    )
    # A tuple from each: 100 + 200, then 0.75 tuples reach the join, and 1.5 of 100 ns the output.
    assert list(loads(query.operators).values()) == [100, 200, 750, 150]


def test_the_slots_of_a_worked_example() -> None:
    # Class H of priority 12 has queries of cost 300 and 100: shares 9 and 3. Class L of priority 3 has one
    # query: share 3. The multiplier is 1/3, so the slots are 3, 1 and 1.
    network = network_of({"a": ("H", 300), "b": ("H", 100), "c": ("L", 50)}, {"H": 12, "L": 3})
    # 3 is 11 in binary, 1 is 01: a; a b c; a.
    assert turns(network, 10) == list("aabca" * 2)


def test_turns_are_shared_by_priority() -> None:
    # Shares 5, 5 of H and 2, 4 of L by cost 1:2; multiplier 1/2: priorities 2.5, 2.5, 1, 2, so a first slot
    # of a and b is used half of the time.
    network = network_of({"a": ("H", 80), "b": ("H", 80), "c": ("L", 30), "d": ("L", 60)}, {"H": 10, "L": 6})
    found = Counter(turns(network, 8000))
    for id_, priority in {"a": 2.5, "b": 2.5, "c": 1, "d": 2}.items():
        assert found[id_] / 8000 == pytest.approx(priority / 8, rel=0.02)


def test_one_very_light_query_does_not_make_the_round_endless() -> None:
    network = network_of({"light": ("H", 1), "heavy": ("H", 999_999)}, {"H": 1}, longest=4)
    assert Counter(turns(network, 50)) == {"heavy": 40, "light": 10}


# Several cores


def test_a_slot_missed_while_the_query_runs_is_made_up_for() -> None:
    network = network_of({"a": ("H", 300), "b": ("H", 100), "c": ("L", 50)}, {"H": 12, "L": 3})
    for id_ in "abc":
        network.arrive(id_, 1)
    first = network.begin(0)
    assert first is not None
    assert first.operators[0].query.id == "a"
    # The schedule is a a b c a: the second slot of a is passed over, then b and c run.
    seen = []
    for _ in range(2):
        slice_ = network.begin(1)
        assert slice_ is not None
        seen.append(slice_.operators[0].query.id)
        network.end(1)
    assert seen == ["b", "c"]
    network.arrive("b", 1)
    ended_with_something_new(network, first)
    again = network.begin(0)
    assert again is not None
    assert again.operators[0].query.id == "a"
    ended_with_something_new(network, again)
    after = network.begin(0)
    assert after is not None
    assert after.operators[0].query.id == "a"  # its third slot; b's is in the next round


def ended_with_something_new(network: ScriptedNetwork, slice_: Slice) -> None:
    """End a slice after a tuple has arrived too late for it."""
    for operator in slice_.operators:
        assert isinstance(operator, ScriptedOperator)
        operator.running = False
    network.policy.finished(slice_, Report(1, 0, 100))


def test_four_cores_share_no_query_and_lose_nothing() -> None:
    queries = {f"q{number}": (("H", "L")[number % 2], 100.0 + number) for number in range(9)}
    network = ScriptedNetwork("mbd")
    network.priorities.update({"H": 5, "L": 2})
    for id_, (class_name, cost) in queries.items():
        network.add(id_, [Step("select", 0.5, cost), Step("project", 1.0)], class_name)
    for turn in range(300):
        for id_ in queries:
            network.arrive(id_, 2)
        begun = [network.begin(core) for core in range(4)]
        assert None not in begun
        assert len({slice_.operators[0].query.id for slice_ in begun if slice_}) == 4
        for core in ((3, 0, 2, 1), (1, 3, 0, 2), (0, 1, 2, 3))[turn % 3]:
            network.end(core)
    network.run()
    assert network.waiting == 0
    assert set(network.answers.values()) == {300}


def test_no_core_idles_while_a_query_waits() -> None:
    network = network_of(dict.fromkeys("abcd", ("H", 100.0)), {"H": 1}, affinity=True)
    for id_ in "abc":
        network.arrive(id_, 1)
    assert [network.begin(core) is not None for core in range(4)] == [True, True, True, False]
    network.arrive("a", 1)  # it runs already
    assert network.begin(3) is None
    network.arrive("d", 1)
    assert network.begin(3) is not None


def homes(affinity: bool) -> float:
    """Return how often a query ran on the same core as before, with two cores and eight queries."""
    network = network_of({f"q{n}": ("H", 100) for n in range(8)}, {"H": 1}, affinity=affinity)
    random, running, same = Random(3), set[int](), 0
    last: dict[str, int] = {}
    for _ in range(2000):
        core = random.randrange(2)
        if core in running:
            network.end(core)
        feed_all(network)
        slice_ = network.begin(core)
        assert slice_ is not None
        running.add(core)
        id_ = slice_.operators[0].query.id
        same += last.get(id_) == core
        last[id_] = core
    return same / 2000


def test_with_affinity_queries_stay_on_their_core() -> None:
    assert homes(affinity=False) < 0.6
    assert homes(affinity=True) > 0.75


def test_no_query_starves_with_affinity() -> None:
    # Core 0 has run a; b has run on no core and still has its slot in every round.
    network = network_of({"a": ("H", 100), "b": ("H", 100)}, {"H": 1}, affinity=True)
    assert Counter(turns(network, 100)) == {"a": 50, "b": 50}


# Shared operators


def test_queries_that_share_an_operator_are_one_with_both_priorities() -> None:
    network = network_of({"a": ("H", 100), "b": ("L", 100)}, {"H": 6, "L": 2})
    shared(network, "c", network.queries["a"].operators[0], "L")
    # H has 6 for a; L has 2 for b and c, half each: 6 + 1 for the two, and 1 for b.
    found = Counter(turns(network, 80))
    assert found == {"a": 70, "b": 10}
    for id_ in "ab":
        network.arrive(id_, 5)
    both, other = network.begin(0), network.begin(1)
    assert both is not None
    assert other is not None
    assert {len(both.operators), len(other.operators)} == {3, 2}


def test_the_other_members_continue_when_a_query_leaves_while_it_runs() -> None:
    network = network_of({"a": ("H", 100)}, {"H": 1})
    select = network.queries["a"].operators[0]
    shared(network, "b", select, "H")
    network.arrive("a", 10)
    network.begin(0)
    network.policy.retire(network.queries.pop("b"))
    select.downstream.pop()
    assert network.begin(1) is None  # its operators are still being run
    network.arrive("a", 5)
    network.end(0)
    network.run()
    assert network.waiting == 0


def test_a_query_that_is_added_to_a_running_group_waits_for_it() -> None:
    network = network_of({"a": ("H", 100)}, {"H": 1})
    network.arrive("a", 10)
    network.begin(0)
    query = shared(network, "b", network.queries["a"].operators[0], "H")
    query.operators[1].put(1, 0)
    network.policy.arrived(query.operators[1], 0)
    assert network.begin(1) is None
    network.end(0)
    assert network.begin(1) is not None
    network.end(1)
    assert network.answers["b"] == 1


# The modules


def change_cost(network: ScriptedNetwork, id_: str, cost: float) -> None:
    operator = network.queries[id_].operators[0]
    selectivity = operator.statistics.selectivity
    network.measure(operator, Statistics(cost_per_tuple=cost, selectivity=selectivity, tuples=400))


@pytest.mark.parametrize(("selectivity", "turns_of_a"), [("none", 20), ("s", 30), ("sa", 20)])
def test_changed_metrics_count_from_the_next_round_on(selectivity: str, turns_of_a: int) -> None:
    network = network_of({"a": ("H", 100), "b": ("H", 100)}, {"H": 1}, selectivity=selectivity)
    turns(network, 10)
    change_cost(network, "a", 300)
    turns(network, 10)
    assert Counter(turns(network, 40))["a"] == turns_of_a


def test_with_sa_all_metrics_count_after_an_inversion() -> None:
    network = ScriptedNetwork("mbd", {**PLAIN, "selectivity": "sa"})
    network.priorities.update({"H": 2, "L": 1})
    for id_, class_name in {"a": "H", "b": "H", "c": "L"}.items():
        network.add(id_, [Step("select", 1.0, 100)], class_name)
    assert Counter(turns(network, 60))["a"] == 20
    change_cost(network, "a", 500)
    assert Counter(turns(network, 60))["a"] == 20
    network.arrive("a", 1)
    network.now += 1_000_000_000  # H has waited for a second when L answers at once
    turns(network, 20)
    assert Counter(turns(network, 600))["a"] == pytest.approx(600 * 2 * (600 / 800) / 3, rel=0.1)


@pytest.mark.parametrize(("priority", "turns_of_a"), [("none", 20), ("up", 30)])
def test_changed_priorities_count_from_the_next_round_on(priority: str, turns_of_a: int) -> None:
    network = network_of({"a": ("H", 100), "b": ("L", 100)}, {"H": 1, "L": 1}, priority=priority)
    turns(network, 5)
    network.set_priority("H", 3)
    turns(network, 1)  # the current round is not changed
    assert Counter(turns(network, 40))["a"] == turns_of_a


def test_a_query_that_changes_its_class_has_its_share_in_it_within_a_round() -> None:
    network = network_of({"a": ("H", 100), "b": ("L", 100), "c": ("L", 100)}, {"H": 6, "L": 2})
    assert Counter(turns(network, 24)) == {"a": 18, "b": 3, "c": 3}
    network.reclass("c", "H")
    turns(network, 8)
    found = Counter(turns(network, 800))
    assert found["a"] == pytest.approx(300, abs=10)
    assert found["c"] == pytest.approx(300, abs=10)


@pytest.mark.parametrize("module", ["none", "dvp", "ivp", "dsp", "isp", "cascade"])
def test_an_inversion_moves_turns_to_the_class_that_answers_late(module: str) -> None:
    network = ScriptedNetwork("mbd", {"inversion": module, "calm": 10_000})
    network.priorities.update({"H": 4, "L": 3})
    for id_, class_name in {"a": "H", "b": "L"}.items():
        network.add(id_, [Step("select", 1.0, 100)], class_name)
        network.add(f"silent {id_}", [Step("select", 0.0, 100)], class_name)
    for _ in range(60):
        network.arrive("a", 1)
        network.now += 1_000_000
        for id_ in ("b", "silent a", "silent b"):
            network.arrive(id_, 1)
        network.run()
    ours = _classes(network, turns_of_silent(network, 2000))
    assert (ours["H"] / ours["L"] > 1.5) is (module != "none")


def turns_of_silent(network: ScriptedNetwork, slices: int) -> Iterable[str]:
    for _ in range(slices):
        for id_ in ("silent a", "silent b"):
            if not network.queries[id_].leaves[0].waiting:
                network.arrive(id_, 1)
        slice_ = network.step()
        assert slice_ is not None
        yield slice_.operators[0].query.id


def _classes(network: ScriptedNetwork, ids: Iterable[str]) -> Counter[str]:
    return Counter(network.queries[id_].class_name for id_ in ids)
