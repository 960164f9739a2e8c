"""Verdicts follow from the position of the whole confidence interval."""

from __future__ import annotations

from math import inf, isclose, nan

import pytest

from mavstream_experiments.bands import Band, above, at_least, at_most, below, between
from mavstream_experiments.model import Cell, Claim, Experiment, Table
from mavstream_experiments.verdicts import Finding, Verdict, estimate, findings


def found(
    values: tuple[float, ...], holds: Band, partly: Band | None = None, fitted: bool = False
) -> Finding:
    """Return the finding for a claim whose value is one of the given in each seed."""

    def value(table: Table) -> float:
        return table["only"]["value"]

    claim = Claim("it gains", "3 times", value, holds, partly, fitted=fitted, needs="something to gain")
    one = Experiment(
        "made-up", "A paper", "A title", "About.", "Nothing.", {"only": Cell("A", "rr")}, (claim,)
    )
    (finding,) = findings(one, [{"only": {"value": value}} for value in values])
    return finding


SURE_4, SURE_2 = (4.0, 4.1, 3.9), (2.0, 2.1, 1.9)
UNSURE_ABOVE_3, UNSURE_BELOW_3 = (2.1, 4.1, 3.1), (1.9, 3.9, 2.9)  # 3.1 and 2.9 +- 2.5


@pytest.mark.parametrize(
    ("values", "holds", "partly", "verdict"),
    [
        (SURE_4, at_least(3), None, Verdict.REPRODUCED),
        (SURE_4, between(3.5, 4.5), None, Verdict.REPRODUCED),
        (SURE_2, at_least(3), None, Verdict.NOT),
        (SURE_4, at_most(3), None, Verdict.NOT),
        # The interval crosses the end of the band, wherever its mean is.
        (UNSURE_ABOVE_3, at_least(3), None, Verdict.UNDECIDED),
        (UNSURE_BELOW_3, at_least(3), None, Verdict.UNDECIDED),
        (UNSURE_ABOVE_3, at_most(3), None, Verdict.UNDECIDED),
        (UNSURE_BELOW_3, at_most(3), None, Verdict.UNDECIDED),
        ((1.5, 4.5, 3.0), between(2.9, 3.1), None, Verdict.UNDECIDED),  # wider than the band
        # The wider band needs the whole interval too.
        (SURE_2, at_least(3), at_least(1.5), Verdict.PARTLY),
        (UNSURE_ABOVE_3, at_least(3), at_least(0), Verdict.PARTLY),
        (UNSURE_BELOW_3, at_least(3), at_least(0), Verdict.PARTLY),
        (UNSURE_BELOW_3, at_least(3), at_least(2), Verdict.UNDECIDED),
        (SURE_2, at_least(3), at_least(2), Verdict.NOT),
        # Fewer than three values have no interval.
        ((4.0,), at_least(3), None, Verdict.UNDECIDED),
        ((4.0, 4.0), at_least(3), None, Verdict.UNDECIDED),
        ((2.0,), at_least(3), None, Verdict.UNDECIDED),
        ((inf, inf, inf), at_least(3), None, Verdict.UNDECIDED),
    ],
)
def test_the_whole_interval_decides(
    values: tuple[float, ...], holds: Band, partly: Band | None, verdict: Verdict
) -> None:
    assert found(values, holds, partly).verdict is verdict


@pytest.mark.parametrize(
    ("values", "holds"),
    [(SURE_4, at_least(3)), (SURE_2, at_least(3)), (UNSURE_ABOVE_3, at_least(3)), (UNSURE_BELOW_3, below(3))],
)
def test_the_rule_is_symmetric(values: tuple[float, ...], holds: Band) -> None:
    """A band and the band of everything else get opposite verdicts."""
    rest = Band(low=holds.high, strict=True) if holds.high < inf else Band(high=holds.low, strict=True)
    opposite = {
        Verdict.REPRODUCED: Verdict.NOT,
        Verdict.NOT: Verdict.REPRODUCED,
        Verdict.UNDECIDED: Verdict.UNDECIDED,
    }
    assert found(values, rest).verdict is opposite[found(values, holds).verdict]


def test_a_tie_is_not_a_difference() -> None:
    assert found((1.0, 1.0, 1.0), above(1)).verdict is Verdict.NOT
    assert found((1.0, 1.0, 1.0), below(1)).verdict is Verdict.NOT
    assert found((1.0, 1.0, 1.0), between(1, 2, strict=True)).verdict is Verdict.NOT
    assert found((1.0, 1.0, 1.0), at_least(1)).verdict is Verdict.REPRODUCED


def test_seeds_without_a_value_are_ignored() -> None:
    finding = found((4.0, nan, 4.1, 3.9), at_least(3))
    assert finding.verdict is Verdict.REPRODUCED
    assert finding.measured == estimate([4.0, 4.1, 3.9])
    assert finding.measured.seeds == 3


def test_too_few_seeds_with_a_value_give_no_verdict() -> None:
    assert found((0.0, nan, nan, nan, 0.0), at_most(0)).verdict is Verdict.UNDECIDED


def test_a_claim_without_any_value_is_untested() -> None:
    finding = found((nan, nan, nan), at_most(0))
    assert finding.verdict is Verdict.UNTESTED
    assert finding.measured.seeds == 0


def test_a_fitted_value_is_not_reproduced() -> None:
    assert found(SURE_4, at_least(3), fitted=True).verdict is Verdict.FITTED
    assert found(SURE_2, at_least(3), fitted=True).verdict is Verdict.NOT
    assert found(UNSURE_ABOVE_3, at_least(3), fitted=True).verdict is Verdict.UNDECIDED


def test_an_interval_uses_students_t() -> None:
    measured = estimate([1.0, 2.0, 3.0, 4.0, 5.0])
    assert measured.mean == 3
    assert isclose(measured.high - measured.mean, 2.776 * 2.5**0.5 / 5**0.5, rel_tol=1e-9)
    assert isclose(measured.mean - measured.low, measured.high - measured.mean)


def test_fewer_than_three_values_have_no_interval() -> None:
    assert estimate([7.0]) == (7.0, -inf, inf, 1)
    assert estimate([7.0, 9.0]) == (8.0, -inf, inf, 2)


def test_bands_show_whether_their_ends_are_included() -> None:
    bands = at_least(1), at_most(1), above(1), below(1), between(1, 2), between(1, 2, strict=True)
    assert [1 in band for band in bands] == [True, True, False, False, True, False]
    assert [str(band) for band in bands] == [
        "at least 1",
        "at most 1",
        "more than 1",
        "less than 1",
        "1 to 2",
        "between 1 and 2",
    ]
