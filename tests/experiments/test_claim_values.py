"""Values of claims in cases that must not count as successes."""

from __future__ import annotations

from math import isnan

import pytest

from mavstream_experiments.model import Claim, Table
from mavstream_experiments.papers.mbd.values import first_to_be_stable, not_removing, remaining_inversion
from mavstream_experiments.registry import experiments
from mavstream_experiments.verdicts import Verdict, estimate, verdict


def claim_of(experiment: str, text: str) -> Claim:
    """Return the claim of an experiment whose text begins so."""
    (found,) = [one for one in experiments()[experiment].claims if one.text.startswith(text)]
    return found


# Modules against inversion


def inversions(before: float, after: float) -> Table:
    return {"mbd": {"inversion": before}, "dvp": {"inversion": after}}


def test_the_remaining_inversion_is_a_percentage_of_the_original() -> None:
    remaining = remaining_inversion("dvp", "mbd")
    assert remaining(inversions(0.2, 0.0)) == 0
    assert remaining(inversions(0.2, 0.05)) == 25
    assert remaining(inversions(0.2, 0.3)) == pytest.approx(150)


def test_a_cell_without_an_inversion_has_no_removal() -> None:
    assert isnan(remaining_inversion("dvp", "mbd")(inversions(0.0, 0.0)))
    assert isnan(remaining_inversion("dvp", "mbd")(inversions(0.0, 0.1)))
    assert isnan(not_removing(("dvp",), "mbd")(inversions(0.0, 0.1)))


@pytest.mark.parametrize(
    ("experiment", "text"), [("mbd-sel-change", "DVP_S removes"), ("mbd-sel-change", "S alone")]
)
def test_removal_is_untested_if_no_seed_has_an_inversion(experiment: str, text: str) -> None:
    claim = claim_of(experiment, text)
    table: Table = {cell: {"inversion": 0.0} for cell in experiments()[experiment].cells}
    assert isnan(claim.value(table))
    assert verdict(claim, estimate([])) is Verdict.UNTESTED


def convergence(dvp: tuple[float, float], ivp: tuple[float, float], before: float = 0.2) -> Table:
    """Return metrics of two modules in a run of 1 s: number of updates and time of the last one."""
    names = ("updates", "converged")
    plain = {"inversion": before}
    modules = {"dvp": dvp, "ivp": ivp}
    return {"mbd": plain} | {
        name: {"seconds": 1.0, **dict(zip(names, one, strict=True))} for name, one in modules.items()
    }


def test_a_schedule_that_changes_until_the_end_is_not_stable() -> None:
    fewest = first_to_be_stable("dvp", ("dvp", "ivp"), "updates", "mbd")
    fastest = first_to_be_stable("dvp", ("dvp", "ivp"), "converged", "mbd")
    assert fewest(convergence(dvp=(10, 0.4), ivp=(90, 0.99))) == 100
    assert fewest(convergence(dvp=(10, 0.98), ivp=(90, 0.99))) == 0
    assert fastest(convergence(dvp=(10, 0.98), ivp=(90, 0.99))) == 0
    assert fastest(convergence(dvp=(10, 0.4), ivp=(5, 0.5))) == 100
    assert fewest(convergence(dvp=(10, 0.4), ivp=(5, 0.5))) == 0
    assert fewest(convergence(dvp=(10, 0.4), ivp=(10, 0.4))) == 0, "a tie"
    assert isnan(fewest(convergence(dvp=(10, 0.4), ivp=(90, 0.99), before=0.0)))


# Ties


def test_equal_inversion_of_zero_is_not_less_inversion() -> None:
    claim = claim_of("mbd-piat", "DVP and DSP have less inversion")
    table: Table = {cell: {"run.inversion": 0.0} for cell in experiments()["mbd-piat"].cells}
    assert claim.value(table) == 0
    assert verdict(claim, estimate([0.0] * 5)) is Verdict.NOT


def test_a_class_that_is_no_faster_with_more_cores_is_an_exception() -> None:
    claim = claim_of("mbd-scale-input", "every class is faster")
    same = {f"class{number}.mean": 1.0 for number in range(1, 6)}
    assert claim.value(dict.fromkeys(("2", "4", "8", "16"), same)) == 15


# The knee under overload


def test_a_comparison_at_the_knee_needs_a_knee() -> None:
    claim = claim_of("mbd-scale-overload", "it does so at the same rate")
    flat = {f"at.{rate}": 1.0 for rate in range(600, 2500, 100)}
    early = flat | {f"at.{rate}": 9.0 for rate in range(1500, 2500, 100)}
    late = flat | {f"at.{rate}": 9.0 for rate in range(1800, 2500, 100)}
    assert isnan(claim.value({"2": flat, "16": flat}))
    assert claim.value({"2": early, "16": early}) == 1
    assert claim.value({"2": early, "16": late}) == 1.2
    assert claim.value({"2": early, "16": flat}) == pytest.approx(2500 / 1500)


# Calibration


def test_claims_that_the_calibration_was_fitted_to_are_marked() -> None:
    fitted = {
        (name, claim.text.split(" (")[0])
        for name, one in experiments().items()
        for claim in one.claims
        if claim.fitted
    }
    assert fitted == {
        ("mavstream-figure-6.1", "path capacity is faster than segments"),
        ("mavstream-figure-6.8", "latency: segments higher than path capacity"),
        ("mbd-compare-5i", "class 1 is slower than classes 2 and 4 under PCT"),
        ("mbd-scale-overload", "the response time rises drastically"),
    }
