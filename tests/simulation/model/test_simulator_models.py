"""Models of the simulator: arrivals, selection, calls, overheads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.support.simulation.scenarios import (
    US,
    departures_us,
    direct,
    output,
    query,
    recorded,
    responses_us,
    select,
)

from mavstream_server.simulation.model.arrivals import NEVER, ArrivalTimes, merge_arrivals
from mavstream_server.simulation.model.selection import Selection
from mavstream_server.simulation.run.execute import run
from mavstream_server.simulation.scenario import (
    Accounting,
    ArrivalKind,
    Burst,
    Overheads,
    StreamSpec,
    SwitchPoint,
)

# Arrivals


def times(plan: StreamSpec, until_s: float, seed: int = 1) -> np.ndarray[Any, Any]:
    return np.array(ArrivalTimes(plan, np.random.SeedSequence(seed)).take(int(until_s * 1e9), NEVER)) / 1e9


def test_poisson_arrivals_have_their_rate_and_its_variance() -> None:
    gaps = np.diff(times(StreamSpec("s", 1000), 50))
    assert gaps.size == pytest.approx(50_000, rel=0.02)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03)


def test_fixed_arrivals_are_evenly_spaced_and_end_with_their_number() -> None:
    found = times(StreamSpec("s", 100, ArrivalKind.FIXED, tuples=300), 100)
    assert found.size == 300
    assert np.allclose(np.diff(found), 0.01)
    assert found[0] == 0.01


def test_rates_change_at_their_times() -> None:
    plan = StreamSpec("s", 1000, rates=((2.0, 4000), (3.0, 0), (5.0, 500)))
    counts, _ = np.histogram(times(plan, 9), bins=[0, 2, 3, 5, 9])
    assert counts[2] == 0
    assert counts[[0, 1, 3]] == pytest.approx([2000, 4000, 2000], rel=0.1)


def test_a_stream_whose_rate_becomes_zero_ends() -> None:
    found = times(StreamSpec("s", 1000, rates=((1.0, 0),)), 1000)
    assert found.size == pytest.approx(1000, rel=0.15)
    assert found[-1] <= 1


@pytest.mark.parametrize("random", [False, True])
def test_bursts_alternate_between_two_rates(random: bool) -> None:
    plan = StreamSpec("s", 3000, ArrivalKind.BURSTY, burst=Burst(0.2, 0.6, 200, random))
    assert times(plan, 400).size / 400 == pytest.approx((3000 * 0.2 + 200 * 0.6) / 0.8, rel=0.1)
    if not random:
        phase = times(plan, 80) % 0.8
        assert np.mean(phase < 0.2) == pytest.approx(600 / 720, abs=0.01)


def test_all_streams_are_merged_in_time_order() -> None:
    plans = [StreamSpec(f"s{rate}", rate, tuples=500) for rate in (10, 1000, 30_000)]
    streams = [ArrivalTimes(plan, np.random.SeedSequence(index)) for index, plan in enumerate(plans)]
    found = list(merge_arrivals(streams))
    assert len(found) == 1500
    assert found == sorted(found)
    assert [index for _, index in found].count(2) == 500


# Selection


@pytest.mark.parametrize("selectivity", [0.0, 0.25, 1 / 3, 0.9, 1.0, 2.5])
@pytest.mark.parametrize("size", [1, 7, 3000])
def test_constant_selectivity_is_exact_over_many_batches(selectivity: float, size: int) -> None:
    selection = Selection(selectivity, False, np.random.SeedSequence(0))
    passed = sum(len(selection.pick(list(range(size)))) for _ in range(9000 // size))
    assert passed == int(9000 // size * size * selectivity + 1e-6)


def test_random_selectivity_is_the_same_however_tuples_are_cut_into_batches() -> None:
    def passed(*sizes: int) -> list[int]:
        selection, found, at = Selection(0.3, True, np.random.SeedSequence(4)), [], 0
        for size in sizes:
            found += selection.pick(list(range(at, at + size)))
            at += size
        return found

    whole = passed(10_000)
    assert whole == passed(*[1] * 10_000) == passed(*[2500] * 4)
    assert len(whole) == pytest.approx(3000, rel=0.05)


# Calls, answers, overheads


def test_answers_depart_one_after_the_other() -> None:
    """Set-up of 5, then 10 per tuple: three tuples that arrived at 0 depart at 15, 25 and 35."""
    plan = direct(query("q", output("s", 10, setup=5)), streams=(recorded("s", 0, 0, 0),), cores=1)
    late = replace(plan, streams=(recorded("s", 0, 1, 2),))
    assert departures_us(run(plan, "rr", {"tuples": 3}), "q") == [15, 30, 40]
    # The first is processed alone; the others arrive meanwhile and share a call.
    assert departures_us(run(late, "rr"), "q") == [15, 30, 40]
    assert departures_us(run(late, "rr", {"tuples": 1}), "q") == [15, 30, 45]


def test_a_train_is_emitted_when_it_is_done() -> None:
    """The leaf takes 10 for each of two tuples that wait at 10; then the output takes 1 for each."""
    plan = direct(query("q", select("o", "s", 10), output("o", 1)), streams=(recorded("s", 0, 5, 6),))
    assert departures_us(run(plan, "rr"), "q") == [11, 32, 33]


@pytest.mark.parametrize(
    ("point", "cost"), [(SwitchPoint.OPERATORS, 4), (SwitchPoint.QUERIES, 2), (SwitchPoint.SLICES, 4)]
)
def test_context_switches_cost_where_they_are_configured(point: SwitchPoint, cost: int) -> None:
    """Two queries of two operators, one tuple each."""
    queries = [query(name, select("o", name, 10), output("o", 1), class_name=name) for name in ("a", "b")]
    plan = direct(*queries, streams=(recorded("a", 0), recorded("b", 0)))
    plan = replace(plan, overheads=Overheads(context_switch=3 * US, switch_point=point))
    result = run(plan, "rr", {"unit": "operator"})
    order = cost if point is not SwitchPoint.QUERIES else 4
    assert result.seconds * 1e6 == pytest.approx(22 + 3 * order)
    whole = run(plan, "rr", {"unit": "query"})
    assert whole.seconds * 1e6 == pytest.approx(22 + 3 * (2 if point is SwitchPoint.SLICES else cost))


def test_visits_to_operators_without_tuples_cost() -> None:
    plan = direct(
        query("q", select("o", "s", 10, selectivity=0.5), output("o", 1)),
        streams=(recorded("s", 0, 100),),
        overheads=Overheads(empty_visit=7 * US),
    )
    result = run(plan, "rr", {"unit": "query"})
    # The first tuple is dropped, so the visit to the output is empty; the second is answered.
    assert result.counts.empty_visits == 1
    assert departures_us(result, "q") == [111]
    assert run(plan, "rr", {"unit": "operator"}).counts.empty_visits == 0


def test_counted_overheads_do_not_delay_tuples_but_are_added_to_response_times() -> None:
    """Two slices per tuple: two decisions and two calls are four transitions of 3 us for each tuple."""
    plan = direct(
        query("q", select("o", "s", 10), output("o", 1)),
        streams=(recorded("s", 0, 1000),),
        overheads=Overheads(transition=3 * US, accounting=Accounting.COUNTED),
    )
    result = run(plan, "rr")
    assert result.counts.transitions == 8
    assert departures_us(result, "q") == [11, 1011]
    assert responses_us(result, "q") == [11 + 12, 11 + 12]
    consumed = replace(plan, overheads=replace(plan.overheads, accounting=Accounting.CONSUMED))
    assert responses_us(run(consumed, "rr"), "q") == [11 + 12, 11 + 12]


def test_noise_stays_within_its_bounds() -> None:
    plan = direct(
        query("q", output("s", 100)),
        streams=(recorded("s", *range(0, 500_000, 1000)),),
        overheads=Overheads(noise=0.05),
    )
    found = np.array(responses_us(run(plan, "rr"), "q"))
    assert found.min() == pytest.approx(95, abs=0.5)
    assert found.max() == pytest.approx(105, abs=0.5)
    assert found.mean() == pytest.approx(100, abs=0.5)
