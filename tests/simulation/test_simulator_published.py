"""The simulator reproduces orderings published in the papers, on short runs over several seeds."""

from __future__ import annotations

from statistics import mean
from typing import Any

import pytest

from mavstream_server.simulation import Result, load, simulate


def reduction(workload: str, parameters: dict[str, float], runs: int = 3) -> float:
    """Return by how many percent preemption shortens the mean response time of rate-based scheduling."""
    found = []
    for seed in range(runs):
        tree = load(workload, {**parameters, "tuples": 150}, overrides={"seed": seed})
        plain, cut = (simulate(tree, policy, seed=seed).mean_ms for policy in ("rb", "prb"))
        assert plain is not None
        assert cut is not None
        found.append(100 * (1 - cut / plain))
    return mean(found)


def test_preemption_gains_with_the_skew_of_costs() -> None:
    """PRB paper, figure 4: from 5 % at a skew of 0 to 20 % at 0.9."""
    even, skewed = (reduction("prb_cost_skew", {"skew": skew}) for skew in (0.0, 0.9))
    assert 2 < even < 8 < skewed < 25


@pytest.mark.long
def test_preemption_gains_with_the_cost_of_an_expensive_operator() -> None:
    """PRB paper, figure 11: hardly anything at 25, most at 300."""
    little, much = (reduction("prb_expensive", {"cost": cost}, runs=2) for cost in (25.0, 300.0))
    assert little < 3 < 15 < much


def test_the_orderings_of_the_mavstream_thesis() -> None:
    """6.2 to 6.4: path capacity is fastest and smoothest, segments use least memory, round robin is last."""
    plan = load("mavstream", {"rate": 200, "tuples": 700})
    policies = ("path_capacity", "simplified_segment", "segment", "rr")
    found = {name: [simulate(plan, name, seed=seed) for seed in range(3)] for name in policies}

    def ranked(figure: Any) -> list[str]:
        return sorted(policies, key=lambda name: mean(figure(result) for result in found[name]))

    assert ranked(lambda result: result.mean_ms) == list(policies)
    assert ranked(lambda result: result.queues.mean_bytes)[0] == "segment"
    assert ranked(lambda result: result.throughput_deviation())[0] == "path_capacity"
    # The total number of output tuples is the same for every strategy (6.4).
    assert len({result.counts.answers for results in found.values() for result in results[:1]}) == 1


def test_classes_matter_to_cqc_and_not_to_highest_rate() -> None:
    """CQC paper, figures 4 to 6: class H is many times as fast as under HR, class N is slower."""
    for workload in ("A", "C"):
        rate, classes = (simulate(workload, policy, seconds=0.7, utilisation=0.9) for policy in ("hr", "cqc"))
        assert _ms(rate, "H") > 5 * _ms(classes, "H")
        assert _ms(classes, "H") < _ms(classes, "C") < _ms(classes, "N")


def test_cqc_inverts_where_class_1_is_light_and_abd_does_not() -> None:
    """Dissertation, 5.3.2: workloads E and 5G; class 1 is faster under ABD by 52 and 42 %."""
    for workload in ("E", "5G"):
        one, other = (simulate(workload, policy, seconds=0.7) for policy in ("cqc", "abd"))
        assert one.inversion_ratio > 0.1
        assert other.inversion_ratio == 0
        assert _ms(other, "class1") < 0.8 * _ms(one, "class1")


@pytest.mark.parametrize("workload", ["3D_6", "3E_6", "3F_6", "5I"])
def test_mbd_respects_priorities_on_six_cores(workload: str) -> None:
    """Dissertation, 6.3.1: no inversion, and a starvation ratio of 1.5 to 6.2; MRR knows no classes."""
    result = simulate(workload, "mbd", seconds=0.4)
    assert result.inversion_ratio == 0
    assert result.starvation_ratio is not None
    assert 1.2 < result.starvation_ratio < 7
    even = simulate(workload, "mrr", seconds=0.4)
    assert even.starvation_ratio == pytest.approx(1, abs=0.05)


def test_one_thread_per_class_leaves_cores_idle() -> None:
    """Dissertation, 6.3.1.2: three classes on six cores are overloaded under PCT, and not under PCT_S."""
    alone, split = (simulate("3D_6", policy, seconds=0.4) for policy in ("pct", "pct_s"))
    assert alone.utilisation == pytest.approx(0.5, abs=0.01)
    assert _ms(alone, "class1") > 20 * _ms(split, "class1")


def _ms(result: Result, name: str) -> float:
    found = result.classes[name].mean_ms
    assert found is not None
    return found
