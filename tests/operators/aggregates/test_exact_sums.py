"""Exact sums: the same bits for every order, division into batches and merge, rounded once."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mavstream_server.columns.column import Column
from mavstream_server.operators.aggregates import exact_totals
from mavstream_server.operators.aggregates.accumulator import Accumulator, Slots
from mavstream_server.operators.aggregates.exact_sums import ExactAverage, ExactDeviation, ExactSum
from mavstream_server.operators.aggregates.picks import FloatMaximum, FloatMinimum
from mavstream_server.operators.aggregates.sums import IntAverage
from mavstream_server.operators.operator import QueryFailed

KINDS = (ExactSum, ExactAverage, ExactDeviation)
SMALLEST, LARGEST = 5e-324, 1.7976931348623157e308
SLOTS = 3

_finite = st.floats(allow_nan=False, allow_infinity=False)
_edges = st.sampled_from((0.0, -0.0, SMALLEST, -SMALLEST, 2.0**-1022, 1e16, -1e16, 1.0, 0.1, 1e300, -1e300))
_similar = st.floats(min_value=-50.0, max_value=50.0)
_values = st.lists(st.one_of(_finite, _edges, _similar), min_size=1, max_size=40)


def fold(state: Accumulator, rows: list[tuple[int, float]]) -> None:
    slots = np.array([slot for slot, _ in rows], dtype=np.int64)
    values = np.array([value for _, value in rows], dtype=np.float64)
    state.update(Slots(slots, SLOTS), Column(values), None)


def new(kind: type[Accumulator]) -> Accumulator:
    state = kind()
    state.grow(SLOTS)
    return state


def outcome(state: Accumulator) -> list[str] | str:
    try:
        column = state.result()
    except QueryFailed as failure:
        return str(failure)
    valid = [True] * SLOTS if column.valid is None else column.valid.tolist()
    pairs = zip(column.values.tolist(), valid, strict=True)
    return [float(value).hex() if seen else "null" for value, seen in pairs]


def of(kind: type[Accumulator], values: list[float]) -> float:
    state = kind()
    state.grow(1)
    state.update(Slots(np.zeros(len(values), dtype=np.int64), 1), Column(np.array(values)), None)
    return float(state.result().values[0])


def folded_at_random(kind: type[Accumulator], rows: list[tuple[int, float]], random: Random) -> Accumulator:
    """Fold the rows in another order, in batches, into panes that are saved, taken and merged."""
    rows = random.sample(rows, len(rows))
    panes = [new(kind) for _ in range(random.randint(1, 4))]
    while rows:
        size = random.randint(1, len(rows))
        fold(random.choice(panes), rows[:size])
        rows = rows[size:]
    total = panes.pop()
    for pane in panes:
        loaded = kind()
        loaded.load(pane.save())
        order = np.array(random.sample(range(SLOTS), SLOTS))
        total.merge(order, loaded.take(order))
    return total.take(np.arange(SLOTS))


@pytest.mark.parametrize("kind", KINDS)
@given(values=_values, seed=st.integers(0, 1000))
def test_results_do_not_depend_on_order_batches_and_merges(
    kind: type[Accumulator], values: list[float], seed: int
) -> None:
    random = Random(seed)
    rows = [(random.randrange(SLOTS), value) for value in values]
    whole = new(kind)
    fold(whole, rows)
    assert outcome(folded_at_random(kind, rows, random)) == outcome(whole)


@given(values=_values)
def test_a_sum_is_rounded_once(values: list[float]) -> None:
    exact = sum(map(Fraction, values))
    try:
        expected = float(exact)
    except OverflowError:
        with pytest.raises(QueryFailed, match="a sum of floats is beyond the largest float"):
            of(ExactSum, values)
        return
    assert of(ExactSum, values) == expected
    assert of(ExactAverage, values) == expected / len(values)


@given(values=st.lists(st.one_of(_similar, _edges.filter(lambda x: abs(x) < 1e200)), min_size=1, max_size=60))
def test_a_sum_is_that_of_fsum(values: list[float]) -> None:
    assert of(ExactSum, values) == math.fsum(values)


@given(values=st.lists(st.one_of(_finite, _similar, st.floats(1e9, 1e9 + 1e-3)), min_size=2, max_size=40))
def test_a_deviation_is_close_to_the_exact_one(values: list[float]) -> None:
    count, total = len(values), sum(map(Fraction, values))
    squares = sum(Fraction(value) ** 2 for value in values)
    variance = (squares - total * total / count) / (count - 1)
    power = math.frexp(max(map(abs, values)))[1]
    root = math.sqrt(variance / Fraction(4) ** power)
    try:
        expected = math.ldexp(root, power)
    except OverflowError:
        return
    if expected > 0.999 * LARGEST:
        return
    assert of(ExactDeviation, values) == pytest.approx(expected, rel=1e-15, abs=SMALLEST)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([-0.0, -0.0], 0.0),
        ([LARGEST, LARGEST, -LARGEST], LARGEST),
        ([SMALLEST] * 3, 3 * SMALLEST),
        ([2.0**-1022, -SMALLEST], 2.0**-1022 - SMALLEST),
        ([1e308, 1.0, SMALLEST, -1e308, -1.0], SMALLEST),
        ([1.0, 2.0**-53], 1.0),
        ([1.0, 2.0**-53, SMALLEST], 1.0 + 2.0**-52),
        ([-1.0, -(2.0**-53), -SMALLEST], -1.0 - 2.0**-52),
    ],
)
def test_sums_at_the_limits_of_floats(values: list[float], expected: float) -> None:
    assert of(ExactSum, values).hex() == expected.hex()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("values", [[1.0, math.inf], [-math.inf, math.inf], [math.nan, 0.0]])
def test_values_that_are_not_finite_fail_the_query(kind: type[Accumulator], values: list[float]) -> None:
    with pytest.raises(QueryFailed, match="beyond the largest float"):
        of(kind, values)


def test_the_deviation_of_equal_values_is_zero() -> None:
    for value in (0.1, -1e-300, 1e300, SMALLEST, 0.0):
        assert of(ExactDeviation, [value] * 7) == 0.0


def test_nulls_do_not_count() -> None:
    for kind, expected in ((ExactSum, 4.0), (ExactAverage, 2.0), (ExactDeviation, math.sqrt(2.0))):
        state = new(kind)
        column = Column(np.array([1.0, 9.0, 3.0]), np.array([True, False, True]))
        state.update(Slots(np.array([1, 1, 1]), SLOTS), column, None)
        result = state.result()
        assert result.valid is not None
        assert (result.valid.tolist(), result.values[1]) == ([False, True, False], expected)


def test_carries_are_moved_before_limbs_are_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_totals, "_HEADROOM", 64)
    random = Random(1)
    for sign in (1, -1, 0):
        state, all_values = new(ExactSum), []
        for _ in range(50):
            values = [random.gauss(0, 1) if not sign else sign * LARGEST / 4096 for _ in range(50)]
            fold(state, [(1, value) for value in values])
            other = new(ExactSum)
            fold(other, [(1, -values[0])])
            state.merge(np.arange(SLOTS), other)
            all_values += [*values, -values[0]]
        total = float(sum(map(Fraction, all_values)))
        assert outcome(state)[1] == total.hex()


def test_many_slots_and_wide_ranges_are_stored() -> None:
    state = ExactSum()
    state.grow(1000)
    values = np.ldexp(1.0, np.arange(1000) - 500)
    state.update(Slots(np.arange(1000), 1000), Column(values), None)
    assert state.result().values.tolist() == values.tolist()
    assert state.nbytes >= 1000 * 8 * (1000 // 14)
    none = state.take(np.empty(0, dtype=np.int64))
    assert none.result().values.tolist() == []


@pytest.mark.parametrize("kind", [FloatMinimum, FloatMaximum])
@pytest.mark.parametrize("values", [[0.0, -0.0], [-0.0, 0.0], [-0.0]])
def test_an_extreme_of_zero_has_no_sign(kind: type[Accumulator], values: list[float]) -> None:
    assert of(kind, values).hex() == "0x0.0p+0"


def test_averages_of_integers_are_rounded_once_in_two_words_as_well() -> None:
    narrow, wide = IntAverage(), IntAverage()
    values = np.array([2**61 + 1, 2**61 - 5, 3, 1])
    for state in (narrow, wide):
        state.grow(1)
    wide._widen()
    for state in (narrow, wide):
        state.update(Slots(np.zeros(4, dtype=np.int64), 1), Column(values), None)
    assert narrow.result().values.tolist() == wide.result().values.tolist() == [float(2**62) / 4]
