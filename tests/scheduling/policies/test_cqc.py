"""Class-level scheduling with negative credit (CQC)."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest

from mavstream_server.scheduling.mechanisms.units import QueryUnits
from mavstream_server.scheduling.policies.cqc import QueryClasses
from mavstream_server.scheduling.policy import Level
from mavstream_server.scheduling.registry import POLICIES, InvalidPolicy
from mavstream_server.scheduling.view import OperatorKind, Slice
from mavstream_server.testing import ScriptedNetwork, ScriptedOperator, ScriptedQuery, Step

US = 1000
PRIORITIES = {"H": 6, "C": 3, "N": 1}


def three_classes(options: dict[str, Any] | None = None, cost: float = 1 * US) -> ScriptedNetwork:
    network = ScriptedNetwork("cqc", options)
    network.priorities |= PRIORITIES
    for name in "NCH":
        network.add(name, [Step("select", 0.0, cost)], class_name=name)
    return network


def shares(network: ScriptedNetwork) -> dict[str, int]:
    assert isinstance(network.policy, QueryClasses)
    return {account.class_name: account.share for account in network.policy.accounts}


def credit_of(network: ScriptedNetwork, name: str) -> int:
    assert isinstance(network.policy, QueryClasses)
    return {account.class_name: account.credit for account in network.policy.accounts}[name]


def turns(network: ScriptedNetwork, slices: int) -> list[str]:
    """Run slices and return the classes that ran."""
    ran = [slice_.operators[0].query.id for slice_ in (network.step() for _ in range(slices)) if slice_]
    return [name for name, _ in groupby(ran)]


# Algorithm 1, by its numbers


def test_the_papers_quotas_for_priorities_6_3_1_and_a_period_of_20() -> None:
    network = three_classes({"period_us": 20})
    assert list(shares(network).items()) == [("H", 12 * US), ("C", 6 * US), ("N", 2 * US)]


def test_step_3b_as_printed_lets_a_class_in_debt_gain() -> None:
    busy = {}
    for reading in ("intent", "literal"):
        network = three_classes({"period_us": 1000, "train": 1, "step_3b": reading}, cost=130 * US)
        for name in "HCN":
            network.arrive(name, 100_000)
        for _ in range(3000):
            network.step()
        busy[reading] = network.busy["N"] / sum(network.busy.values())
    # N, T = 100: 130, c = 70; 130, c = 40 or as printed 70 again: it never pays for more than 30 of its 130.
    assert busy["intent"] == pytest.approx(0.1, abs=0.005)
    assert busy["literal"] > 0.11


def test_an_overlong_slice_is_charged_to_the_rounds_after_it() -> None:
    network = three_classes({"period_us": 1000, "train": 1}, cost=250 * US)
    for name in "HCN":
        network.arrive(name, 1000)
    ran = [slice_.operators[0].query.id for slice_ in (network.step() for _ in range(20)) if slice_]
    # Credit at the beginning of each turn, and how many tuples of 250 us are begun before it is used up:
    # H: 600 (3), 450 (2), 550 (3), 400 (2), 500 (2); C: 300 (2), 100 (1), 150 (1), 200 (1), 250 (1);
    # N: 100 (1), -50 (0), 50 (1), -100 (0), 0 (0)
    assert "".join(ran) == "HHHCCNHHCHHHCNHHCHHC"


def test_long_run_shares_of_time_are_those_of_the_priorities() -> None:
    for cost in (1 * US, 37 * US, 250 * US):
        network = three_classes({"period_us": 1000}, cost)
        for name in "HCN":
            network.arrive(name, 10_000_000)
        for _ in range(3000):
            network.step()
        total = sum(network.busy.values())
        for name, priority in PRIORITIES.items():
            assert network.busy[name] / total == pytest.approx(priority / 10, abs=0.02), (cost, name)


def test_shares_hold_on_two_cores() -> None:
    network = ScriptedNetwork("cqc", {"period_us": 1000})
    network.priorities |= PRIORITIES
    for name in "HCN":
        for twin in "ab":
            network.add(name + twin, [Step("select", 0.0, 40 * US)], class_name=name)
            network.arrive(name + twin, 200_000)
    network.begin(0)
    for index in range(3000):
        network.begin((index + 1) % 2)
        network.end(index % 2)
    total = sum(network.busy.values())
    for name, priority in PRIORITIES.items():
        assert network.busy[name] / total == pytest.approx(priority / 10, abs=0.03), name


# Bounds of slices, and waiting


def test_slices_are_bounded_by_the_remaining_credit_and_by_the_train() -> None:
    network = three_classes({"period_us": 1000, "train": 50})
    network.arrive("H", 1000)
    network.arrive("C", 1000)
    slices = [slice_ for slice_ in (network.step() for _ in range(13)) if slice_]
    assert {slice_.tuples for slice_ in slices} == {50}
    assert [slice_.duration for slice_ in slices] == [left * US for left in range(600, 0, -50)] + [300 * US]


def test_the_inner_policy_may_ask_for_less() -> None:
    inner = {"policy": "rr", "options": {"tuples": 20, "quantum_us": 10}}
    network = three_classes({"period_us": 1000, "train": 50, "inner": inner})
    network.arrive("H", 1000)
    assert network.step() == Slice((network.queries["H"].operators[0],), 20, 10 * US)


def test_a_starved_class_blocks_class_1_for_one_train_at_most() -> None:
    network = three_classes({"period_us": 1000, "train": 20}, cost=10 * US)
    network.arrive("N", 1_000_000)
    for _ in range(1000):
        slice_ = network.begin()
        assert slice_ is not None
        network.arrive("H", 1)  # while N is being run
        asked, waited = network.now, 0
        network.end()
        while slice_.operators[0].query.id != "H":
            waited = network.now - asked
            slice_ = network.begin()
            assert slice_ is not None
            network.end()
        # N has 100 us a round, all of which may still be left, and may exceed it by 20 tuples of 10 us.
        assert waited <= (100 + 200) * US


def test_important_tuples_wait_for_one_round_of_the_others_at_most() -> None:
    network = three_classes({"period_us": 1000}, cost=7 * US)
    network.arrive("N", 1_000_000)
    network.arrive("C", 1_000_000)
    worst = 0
    for round_ in range(500):
        for _ in range(round_ % 5):
            network.step()
        network.arrive("H", 3)
        arrived = network.now
        while (slice_ := network.begin()) is not None and slice_.operators[0].query.id != "H":
            network.end()
        worst = max(worst, network.now - arrived)
        network.end()
    # T_C + T_N, and one tuple beyond each
    assert worst <= (300 + 100 + 14) * US


def test_a_class_with_no_ready_operator_yields_at_once() -> None:
    network = three_classes({"period_us": 1000})
    network.arrive("H", 10)
    network.arrive("N", 1000)
    assert [slice_.operators[0].query.id for slice_ in network.run()][:2] == ["H", "N"]
    assert network.now == (10 + 1000) * US


def test_a_class_in_debt_runs_at_once_if_no_other_class_has_work() -> None:
    network = three_classes({"period_us": 1000}, cost=9e9 * US)  # a tuple costs N 90 million rounds: skipped
    network.arrive("N", 5)
    for _ in range(5):
        assert network.step() is not None
    assert network.step() is None


def test_when_all_work_is_done_debts_are_cancelled_and_the_highest_class_is_first() -> None:
    network = three_classes({"period_us": 1000}, cost=5000 * US)
    network.arrive("N", 1)
    network.run()
    assert credit_of(network, "N") == 100 * US
    network.arrive("N", 1)
    network.arrive("H", 1)
    assert [slice_.operators[0].query.id for slice_ in network.run()] == ["H", "N"]


# Changes while it runs


def test_priorities_change_within_a_round() -> None:
    network = three_classes({"period_us": 1000})
    for name in "HCN":
        network.arrive(name, 1_000_000)
    network.step()
    network.set_priority("N", 11)
    assert shares(network) == {"N": 550 * US, "H": 300 * US, "C": 150 * US}
    network.busy.clear()
    for _ in range(300):
        network.step()
    total = sum(network.busy.values())
    assert network.busy["N"] / total == pytest.approx(0.55, abs=0.02)


def test_classes_are_added_and_removed_within_a_round() -> None:
    network = three_classes({"period_us": 1000})
    network.arrive("N", 1_000_000)
    network.arrive("C", 1_000_000)
    assert turns(network, 1) == ["C"]
    network.priorities["X"] = 10
    network.add("x", [Step("select", 0.0, 1 * US)], class_name="X")
    network.arrive("x", 1_000_000)
    assert shares(network)["X"] == 500 * US
    assert turns(network, 3) == ["N", "x", "C"]
    network.remove("C")  # in its turn
    assert turns(network, 8)[:3] == ["N", "x", "N"]
    for name in ("H", "N", "x"):
        network.remove(name)
    assert network.step() is None


def test_a_query_that_changes_its_class_while_it_runs_is_run_in_its_new_class() -> None:
    network = three_classes({"period_us": 1000})
    network.arrive("N", 2000)
    network.begin()
    network.reclass("N", "H")
    network.end()
    assert list(shares(network)) == ["H", "C"]
    network.run()
    assert network.waiting == 0


# Sources


def with_source(network: ScriptedNetwork, name: str, numbers: int, class_name: str) -> ScriptedQuery:
    """A source, a selection and an output; tuples arrive at the source."""
    query = ScriptedQuery(name, class_name)
    kinds = (OperatorKind.SOURCE, OperatorKind.OPERATIONAL, OperatorKind.OUTPUT)
    for index, kind in enumerate(kinds):
        step = Step(kind.value, 1.0, 10 * US)
        operator = ScriptedOperator(numbers + index, query, step, kind, leaf=kind is OperatorKind.SOURCE)
        if query.operators:
            query.operators[-1].downstream.append(operator)
        query.operators.append(operator)
    query.paths = [list(query.operators)]
    return network.add_query(query)


def inner_policies() -> list[dict[str, Any]]:
    names = [name for name, policy in sorted(POLICIES.items()) if policy.level is Level.OPERATOR]
    return [{"policy": name, "options": {"unit": "operator"} if name == "deadline" else {}} for name in names]


@pytest.mark.parametrize("inner", inner_policies())
def test_sources_are_asked_only_when_nothing_else_of_the_class_is_ready(inner: dict[str, Any]) -> None:
    network = ScriptedNetwork("cqc", {"train": 5, "inner": inner})
    for index in range(3):
        with_source(network, f"q{index}", 100 + 10 * index, "default")
        network.arrive(f"q{index}", 20)
    served = []
    while (slice_ := network.begin()) is not None:
        kinds = {operator.kind for operator in slice_.operators}
        if OperatorKind.SOURCE in kinds:
            assert len(kinds) == 1
            others = [o for query in network.queries.values() for o in query.operators[1:]]
            assert not any(operator.waiting for operator in others)
            served.append(slice_.operators[0].query.id)
        network.end()
    assert served == ["q0", "q1", "q2"] * 4
    assert set(network.answers.values()) == {20}


@pytest.mark.parametrize("policy", ["rr", "hr", "rb", "deadline"])
def test_a_query_that_runs_as_a_whole_reads_in_its_own_turn(policy: str) -> None:
    inner = {"policy": policy, "options": {"unit": "query"}}
    network = ScriptedNetwork("cqc", {"train": 5, "inner": inner})
    for index in range(3):
        with_source(network, f"q{index}", 100 + 10 * index, "default")
        network.arrive(f"q{index}", 20)
    while (slice_ := network.begin()) is not None:
        assert list(slice_.operators) == list(slice_.operators[0].query.operators)
        network.end()
        assert not any(operator.waiting for operator in slice_.operators[1:])
    assert set(network.answers.values()) == {20}


def test_a_class_is_charged_for_its_sources() -> None:
    network = ScriptedNetwork("cqc", {"period_us": 1000, "train": 10})
    network.priorities |= PRIORITIES
    for index, name in enumerate("HN"):
        with_source(network, name, 100 + 10 * index, name)
        network.arrive(name, 100_000)
    for _ in range(2000):
        network.step()
    assert network.busy["N"] / sum(network.busy.values()) == pytest.approx(1 / 7, abs=0.02)


def test_sources_are_removed_with_their_query_and_get_new_metrics() -> None:
    network = ScriptedNetwork("cqc", {"inner": {"policy": "rr", "options": {"unit": "query"}}})
    for index in range(2):
        with_source(network, f"q{index}", 100 + 10 * index, "default")
        network.arrive(f"q{index}", 20)
    query = network.queries["q1"]
    query.units = QueryUnits(query)
    network.policy.refreshed(query)
    network.remove("q0")
    assert {operator.query.id for slice_ in network.run() for operator in slice_.operators} == {"q1"}


def test_only_an_operator_level_policy_is_accepted_as_the_inner_one() -> None:
    with pytest.raises(
        InvalidPolicy, match="'cqc' is a policy of class level and cannot be used inside another"
    ):
        ScriptedNetwork("cqc", {"inner": {"policy": "cqc"}})
