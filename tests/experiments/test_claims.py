"""Every claim of the papers can fail, and claims that cannot are detected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.simulation.claim_checks import faults

from mavstream_experiments.bands import Band, above, at_least, at_most, below, between
from mavstream_experiments.model import Cell, Claim, Experiment, Table
from mavstream_experiments.registry import experiments

EXPERIMENTS = experiments()


@pytest.mark.parametrize("one", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_every_claim_can_fail(one: Experiment) -> None:
    assert faults(one) == []


@pytest.mark.parametrize("one", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_no_two_claims_of_an_experiment_have_the_same_text(one: Experiment) -> None:
    texts = [claim.text for claim in one.claims]
    assert sorted(set(texts)) == sorted(texts)


# Claims that the check must detect


def made_up(value: Callable[[Table], float], holds: Band, **more: Any) -> Experiment:
    cells = {
        policy: Cell("5G_4", policy, settings={"seconds": 0.4}) for policy in ("mbd", "mrr", "pct", "pct_s")
    }
    claim = Claim("it holds", "it does", value, holds, **more)
    return Experiment("made-up", "A paper", "A title", "What is done.", "Nothing.", cells, (claim,))


def test_a_difference_band_that_includes_the_tie_is_detected() -> None:
    def lead(table: Table) -> float:
        return table["mrr"]["inversion"] - table["mbd"]["inversion"]

    (fault,) = faults(made_up(lead, at_least(0)))
    assert "is reproduced where nothing differs" in fault
    assert faults(made_up(lead, above(0))) == []


def test_a_ratio_band_that_includes_the_tie_is_detected() -> None:
    def ratio(table: Table) -> float:
        return table["mrr"]["mean"] / table["mbd"]["mean"]

    (fault,) = faults(made_up(ratio, at_least(1)))
    assert "is reproduced where nothing differs" in fault
    assert faults(made_up(ratio, above(1))) == []


def test_a_wider_band_that_includes_the_tie_is_detected() -> None:
    """A claim holds in part only if the direction is right."""

    def ratio(table: Table) -> float:
        return table["mbd"]["mean"] / table["mrr"]["mean"]

    (fault,) = faults(made_up(ratio, below(1), partly=at_most(1.1)))
    assert "is partly where nothing differs" in fault
    assert faults(made_up(ratio, at_most(0.8), partly=below(1))) == []


def test_cells_that_are_the_same_simulation_are_detected() -> None:
    """PCT_S gives every class one thread if there are more classes than cores, as PCT does."""

    def ratio(table: Table, one: str = "pct_s") -> float:
        return table[one]["weighted"] / table["pct"]["weighted"]

    (fault,) = faults(made_up(ratio, between(0.9, 1.1), no_effect=True))
    assert "is not refuted by any made-up metrics" in fault
    assert faults(made_up(lambda table: ratio(table, "mrr"), between(0.9, 1.1), no_effect=True)) == []


def test_a_conserved_number_is_detected() -> None:
    def spread(table: Table) -> float:
        answers = [metrics["answers"] for metrics in table.values()]
        return max(answers) - min(answers)

    (fault,) = faults(made_up(spread, at_most(0), no_effect=True))
    assert "is not refuted by any made-up metrics" in fault


def test_a_wider_band_that_contains_all_values_is_detected() -> None:
    def to_best(table: Table) -> float:
        return max(table[one]["mean"] for one in table) / min(table[one]["mean"] for one in table)

    tie, tautology = faults(made_up(to_best, at_least(1.05), partly=at_least(1)))
    assert "is partly where nothing differs" in tie
    assert "is not refuted by any made-up metrics" in tautology
    assert faults(made_up(to_best, at_least(1.05))) == []


def test_a_claim_wrongly_declared_as_no_effect_is_detected() -> None:
    (fault,) = faults(made_up(lambda table: table["mbd"]["inversion"], above(0), no_effect=True))
    assert "where nothing differs it is not reproduced" in fault
