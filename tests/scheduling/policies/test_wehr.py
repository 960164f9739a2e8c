"""Highest rate, weighted by the priority of the class."""

from __future__ import annotations

from mavstream_server.scheduling.registry import POLICIES
from mavstream_server.scheduling.statistics import Statistics
from mavstream_server.testing import ScriptedNetwork, Step


def two_classes(h_cost: float, n_cost: float) -> ScriptedNetwork:
    """A selection per class; with its output a tuple takes the given cost, so its rate is 1 / cost."""
    network = ScriptedNetwork("wehr", {"tuples": 1})
    network.priorities |= {"H": 6, "N": 1}
    network.add("n", [Step("select", 1.0, n_cost - 100)], class_name="N")
    network.add("h", [Step("select", 1.0, h_cost - 100)], class_name="H")
    for name in "nh":
        network.arrive(name, 10)
    return network


def leaves(network: ScriptedNetwork, slices: int) -> str:
    ran = [slice_.operators[0] for slice_ in (network.step() for _ in range(slices)) if slice_]
    return "".join(operator.query.id for operator in ran if operator.leaf)


def test_the_class_decides_between_equal_rates() -> None:
    network = two_classes(h_cost=1000, n_cost=1000)
    assert leaves(network, 40) == "h" * 10 + "n" * 10


def test_a_rate_that_is_more_than_the_ratio_of_priorities_inverts_the_classes() -> None:
    # R_N > P_H / P_N x R_H = 6 R_H, and just not
    assert leaves(two_classes(h_cost=6100, n_cost=1000), 40) == "n" * 10 + "h" * 10
    assert leaves(two_classes(h_cost=5900, n_cost=1000), 40) == "h" * 10 + "n" * 10


def test_hr_ignores_classes() -> None:
    network = two_classes(h_cost=1100, n_cost=1000)
    network.switch("hr", {"tuples": 1})
    assert leaves(network, 40) == "n" * 10 + "h" * 10


def test_low_classes_starve_as_long_as_higher_ones_have_work() -> None:
    assert not POLICIES["wehr"].fair
    network = two_classes(h_cost=1000, n_cost=1000)
    for _ in range(500):
        network.arrive("h", 1)
        network.step()
    assert network.answers["n"] == 0


def test_new_priorities_apply_to_waiting_tuples() -> None:
    network = two_classes(h_cost=1000, n_cost=1000)
    assert leaves(network, 4) == "hh"
    network.set_priority("N", 7)
    assert leaves(network, 4) == "nn"


def test_new_metrics_apply_to_waiting_tuples() -> None:
    network = two_classes(h_cost=1000, n_cost=1000)
    leaf = network.queries["h"].operators[0]
    network.measure(leaf, Statistics(cost_per_tuple=900, selectivity=0.1, tuples=400))  # 6 x .1 / 910
    assert leaves(network, 4) == "nn"


def test_a_query_takes_the_priority_of_the_class_that_it_moves_to() -> None:
    network = two_classes(h_cost=1000, n_cost=1000)
    network.priorities["X"] = 9
    network.reclass("n", "X")
    assert leaves(network, 4) == "nn"
