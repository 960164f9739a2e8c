"""The contract of all scheduling policies in scripted networks, the registry, and round robin."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mavstream_server.scheduling
from mavstream_server.scheduling.registry import POLICIES, InvalidPolicy
from mavstream_server.testing import ScriptedNetwork

CHAIN = [("select", 0.5), ("join", 1.0), ("project", 1.0)]

every_policy = pytest.mark.parametrize("policy", sorted(POLICIES))


def loaded(policy: str, queries: int = 5, tuples: int = 1000) -> ScriptedNetwork:
    network = ScriptedNetwork(policy)
    for number in range(queries):
        network.add(f"q{number}", CHAIN)
        network.arrive(f"q{number}", tuples)
    return network


@every_policy
def test_a_policy_runs_until_no_tuples_wait(policy: str) -> None:
    network = loaded(policy)
    network.run()
    assert network.waiting == 0
    assert network.answers == {f"q{number}": 500 for number in range(5)}


@every_policy
def test_a_policy_never_idles_while_an_operator_is_ready(policy: str) -> None:
    network = loaded(policy)
    while network.waiting:
        assert network.step() is not None
    assert network.step() is None


@every_policy
def test_a_retired_query_is_never_chosen_again(policy: str) -> None:
    network = loaded(policy)
    for _ in range(3):
        network.step()
    network.remove("q2")
    chosen = {operator.query.id for slice_ in network.run() for operator in slice_.operators}
    assert "q2" not in chosen
    assert network.answers["q4"] == 500


@every_policy
def test_the_same_calls_give_the_same_decisions(policy: str) -> None:
    runs = [
        [[operator.number for operator in slice_.operators] for slice_ in loaded(policy).run()]
        for _ in range(2)
    ]
    assert runs[0] == runs[1]


@every_policy
@pytest.mark.parametrize("other", sorted(POLICIES))
def test_a_policy_takes_over_from_another_with_tuples_in_flight(policy: str, other: str) -> None:
    network = loaded(other)
    for _ in range(7):
        network.step()
    network.switch(policy)
    network.run()
    assert set(network.answers.values()) == {500}


@every_policy
def test_no_query_starves_under_policies_that_promise_it(policy: str) -> None:
    if not POLICIES[policy].fair:
        return
    network = ScriptedNetwork(policy)
    for number in range(3):
        network.add(f"q{number}", CHAIN)
    network.arrive("q2", 100)
    for _ in range(200):
        for number in range(2):  # two queries always have tuples
            network.arrive(f"q{number}", 10)
        network.step()
    assert network.answers["q2"] == 50


@every_policy
def test_a_decision_reads_few_operators_however_many_there_are(policy: str) -> None:
    looks = {}
    for queries in (25, 2500):
        network = loaded(policy, queries, tuples=4)
        operators = [operator for query in network.queries.values() for operator in query.operators]
        for operator in operators:
            operator.looks = 0
        slices = [network.step() for _ in range(100)]
        made = sum(slice_ is not None for slice_ in slices)
        looks[queries] = sum(operator.looks for operator in operators) / made
    assert looks[2500] <= 2 * looks[25]


@every_policy
def test_a_policy_describes_itself(policy: str) -> None:
    kind = POLICIES[policy]
    assert kind.name == kind.__module__.rpartition(".")[2]
    assert kind.__doc__
    assert kind.optimises
    assert kind.Options.model_json_schema()["type"] == "object"


def test_the_error_for_an_unknown_policy_lists_the_known_ones() -> None:
    with pytest.raises(InvalidPolicy, match="unknown policy 'best'; known are: "):
        ScriptedNetwork("best")


def test_an_invalid_option_is_named() -> None:
    with pytest.raises(InvalidPolicy) as caught:
        ScriptedNetwork("rr", {"tuples": 0})
    assert caught.value.items[0].pointer == "options/tuples"
    assert "got 0" in caught.value.items[0].detail
    with pytest.raises(InvalidPolicy, match="options/quantum: policy 'rr'"):
        ScriptedNetwork("rr", {"quantum": 5})


def test_policies_import_neither_numpy_nor_operators_nor_clocks() -> None:
    folder = Path(mavstream_server.scheduling.__file__).parent
    allowed = ("mavstream_protocol", "mavstream_server.scheduling", "pydantic")
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                root = name.partition(".")[0]
                if root in ("mavstream_server", "mavstream_protocol", "numpy", "time", "asyncio"):
                    assert name.startswith(allowed), f"{path.name} imports {name}"


def test_rr_gives_equal_turns_in_the_order_of_readiness() -> None:
    network = ScriptedNetwork("rr", {"tuples": 10})
    for name in "ab":
        network.add(name, [("select", 0.1)])
        network.arrive(name, 25)
    turns = [(s.operators[0].query.id, s.operators[0].operator) for s in network.run()]
    assert turns[:4] == [("a", "select"), ("b", "select"), ("a", "output"), ("a", "select")]


def test_rr_without_a_bound_takes_all_waiting_tuples() -> None:
    network = ScriptedNetwork("rr")
    network.add("a", [("select", 1.0)])
    network.arrive("a", 12345)
    assert len(network.run()) == 2


def test_wrr_gives_costly_operators_and_leaves_longer_turns() -> None:
    network = ScriptedNetwork("wrr", {"tuples": 10, "weights": {"join": 4}, "leaf_bonus": 2})
    network.add("a", [("join", 1.0), ("join", 1.0), ("select", 1.0)])
    network.arrive("a", 1000)
    lengths = {(s.operators[0].operator, s.operators[0].leaf): s.tuples for s in network.run()}
    assert lengths == {("join", True): 80, ("join", False): 40, ("select", False): 10, ("output", False): 10}
