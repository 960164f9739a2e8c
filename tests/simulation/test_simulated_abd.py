"""ABD in the simulator: low classes at high loads, and classes that read from logs."""

from __future__ import annotations

import pytest

from mavstream_server.simulation import simulate
from mavstream_server.simulation.report.result import Result
from mavstream_server.simulation.workload.model import Workload

# The text's system: sources on a core of their own


@pytest.mark.parametrize("load", [0.80, 0.84, 0.88])
def test_the_bound_of_the_quota_slice_does_not_starve_the_lowest_class(load: float) -> None:
    found = simulate("D", "abd", utilisation=load, seconds=2, seed=1)
    unbounded = simulate("D", "abd", {"most_us": 10_000_000}, utilisation=load, seconds=2, seed=1)
    lowest, allowed = found.classes["class3"].mean_ms, unbounded.classes["class3"].mean_ms
    important = found.classes["class1"].mean_ms
    assert lowest is not None
    assert allowed is not None
    assert important is not None
    assert lowest <= 1.1 * allowed
    assert important < lowest <= 5 * important


# As in the live engine: one core, sources are scheduled and read a train of 1.5 ms at most

_QUERIES = 10
_TRAIN = 1000  # tuples
_TURN = 100_000 + _TRAIN * 1_500  # ns, of a query with a full train: three calls, and the work on tuples


def beside(rate: float) -> Workload:
    """Return class H with 6,000 tuples/s a query beside N with more, on one core."""
    rates = {"H": 6_000.0, "N": rate}
    return Workload.model_validate(
        {
            "name": "beside",
            "seconds": 1.5,
            "classes": {"H": {"priority": 6}, "N": {"priority": 1}},
            "sources": {"cost_us": 0.5, "train": _TRAIN},
            "overheads": {"setup_us": 30, "context_switch_us": 3},
            "streams": {f"{name}{n}": {"rate": rates[name]} for name in rates for n in range(_QUERIES)},
            "queries": [
                {
                    "class": name,
                    "operators": {
                        "s": {"kind": "select", "input": f"{name}{n}", "cost_us": 1, "selectivity": 0.1}
                    },
                }
                for name in rates
                for n in range(_QUERIES)
            ],
        }
    )


def run(policy: str, rate: float) -> Result:
    options = {"unit": "query"} if policy == "rr" else {}
    return simulate(beside(rate), policy, options, sources="per_class", seed=1)


def test_the_lower_class_keeps_up_where_round_robin_does() -> None:
    fair, found = (run(policy, 48_000).classes for policy in ("rr", "abd"))  # 0.91 by work on tuples alone
    means = [classes[name].mean_ms for classes in (fair, found) for name in "HN"]
    fair_h, fair_n, h, n = (mean for mean in means if mean is not None)
    assert h < fair_h
    assert n < 5 * fair_n


def test_an_overloaded_class_costs_the_important_one_a_few_turns() -> None:
    fair, found = (run(policy, 120_000) for policy in ("rr", "abd"))
    # A slot of N lasts four turns, and a pass of H a little more than one.
    times = found.answers["H"].responses
    assert sorted(times)[int(0.99 * len(times))] < 8 * _TURN
    answers = [len(result.answers["N"].responses) for result in (fair, found)]
    assert answers[1] >= 0.8 * answers[0]
