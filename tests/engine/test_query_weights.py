"""Weights: a query with more weight goes first inside its class, and the others still get turns."""

from __future__ import annotations

from typing import Any

import pytest

from mavstream_server.optimizer.cooldown import Cooldown
from mavstream_server.scheduling.registry import weighs
from mavstream_server.testing import ScriptedNetwork, Step


def served(network: ScriptedNetwork, turns: int) -> list[str]:
    """Return the queries that ran, while all of them have tuples."""
    found = []
    for _ in range(turns):
        for id_ in network.queries:
            network.arrive(id_, 1)
        slice_ = network.step()
        assert slice_ is not None
        found.append(slice_.operators[0].query.id)
    return found


def network(policy: str, **options: Any) -> ScriptedNetwork:
    made = ScriptedNetwork(policy, options)
    for id_ in ("a", "b", "c"):
        made.add(id_, [Step("select", 0.0)])
    return made


@pytest.mark.parametrize("policy", ["rr", "wrr"])
def test_round_robin_gives_a_query_turns_by_weight_then_one_to_the_others(
    policy: str,
) -> None:
    made = network(policy)
    assert served(made, 6) == ["a", "b", "c"] * 2
    made.weigh("c", 3)
    assert served(made, 8) == ["c", "c", "c", "a", "c", "c", "c", "b"]
    made.weigh("c", 1)
    assert sorted(served(made, 3)) == ["a", "b", "c"]


def test_heavy_queries_get_more_turns_even_where_they_are_the_majority() -> None:
    made = network("rr")
    made.weigh("a", 2)
    made.weigh("b", 2)
    turns = served(made, 50)
    assert [turns.count(id_) for id_ in ("a", "b", "c")] == [20, 20, 10]


@pytest.mark.parametrize("policy", ["hr", "rb"])
def test_rates_are_multiplied_by_the_weight_of_a_query(policy: str) -> None:
    made = ScriptedNetwork(policy)
    made.add("quick", [Step("select", 1.0, 100)])
    made.add("slow", [Step("select", 1.0, 300)])
    for id_ in ("quick", "slow"):
        made.arrive(id_, 1)
    made.weigh("slow", 4)
    slice_ = made.begin()
    assert slice_ is not None
    assert slice_.operators[0].query.id == "slow"


@pytest.mark.parametrize(
    ("policy", "options", "expected"),
    [
        ("rr", {}, True),
        ("cqc", {}, True),
        ("abd", {"inner": {"policy": "wrr"}}, True),
        ("cqc", {"inner": {"policy": "chain"}}, False),
        ("segment", {}, False),
        ("amos", {}, False),
    ],
)
def test_policies_declare_whether_they_use_weights(
    policy: str, options: dict[str, Any], expected: bool
) -> None:
    assert weighs(policy, options) is expected


def test_a_cooldown_doubles_when_it_is_needed_again_soon() -> None:
    cooldown, now, lengths = Cooldown(), 0.0, []
    for _ in range(7):
        cooldown.relaxed(now)
        cooldown.needed_again(now + 5, soon=60)
        lengths.append(cooldown.until - now - 5)
        now = cooldown.until
    assert lengths == [60, 120, 240, 480, 960, 960, 960]
    cooldown.relaxed(now)
    cooldown.needed_again(now + 61, soon=60)
    cooldown.relaxed(now + 70)
    cooldown.needed_again(now + 80, soon=60)
    assert cooldown.until == now + 80 + 60, "after a time without need it starts again at its minimum"
