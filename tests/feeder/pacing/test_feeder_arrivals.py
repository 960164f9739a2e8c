"""Due times of tuples: Poisson arrivals, rates, the schedule, and lags."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mavstream_feeder import (
    InvalidRate,
    Schedule,
    parse_rate,
    parse_rates,
)
from mavstream_feeder.pacing.arrivals import PoissonArrivals
from mavstream_feeder.pacing.lags import Lags

MANY = 1 << 30


def poisson(rate: str, seed: int = 1, start: float = 0.0, name: str = "readings") -> PoissonArrivals:
    return PoissonArrivals(parse_rate(rate), start, seed, name)


def kolmogorov_smirnov(gaps: np.ndarray, rate: float) -> float:
    """Return how far the gaps are from exponential, in units in which 1.63 is exceeded once in a hundred."""
    ordered = np.sort(gaps)
    expected = 1 - np.exp(-rate * ordered)
    steps = np.arange(len(ordered) + 1) / len(ordered)
    distance = max(np.max(steps[1:] - expected), np.max(expected - steps[:-1]))
    return float(distance * math.sqrt(len(ordered)))


def test_gaps_are_exponential_with_the_given_rate() -> None:
    times = poisson("1500").take(20, MANY)
    gaps = np.diff(times, prepend=0.0)
    assert len(times) == pytest.approx(30_000, abs=4 * math.sqrt(30_000))
    assert gaps.mean() == pytest.approx(1 / 1500, rel=0.03)
    assert gaps.std() == pytest.approx(1 / 1500, rel=0.03)
    assert kolmogorov_smirnov(gaps, 1500) < 1.63


def test_the_test_of_the_gaps_can_fail() -> None:
    assert kolmogorov_smirnov(np.full(1000, 1 / 1500), 1500) > 1.63
    assert kolmogorov_smirnov(np.diff(poisson("1300").take(20, MANY)), 1500) > 1.63


def test_counts_of_streams_with_different_seeds_are_independent() -> None:
    one = np.histogram(poisson("100", name="one").take(100, MANY), bins=1000)[0]
    two = np.histogram(poisson("100", name="two").take(100, MANY), bins=1000)[0]
    assert abs(np.corrcoef(one, two)[0, 1]) < 4 / math.sqrt(1000)
    assert one.var() == pytest.approx(one.mean(), rel=0.2)


def test_the_same_seed_gives_the_same_times_however_they_are_taken() -> None:
    whole = poisson("40@3s,500@2s,80").take(60, MANY)
    arrivals = poisson("40@3s,500@2s,80")
    parts = [arrivals.take(now, 7) for now in np.arange(0, 60.01, 0.05) for _ in range(10)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    assert not np.array_equal(whole[:50], poisson("40@3s,500@2s,80", seed=2).take(60, MANY)[:50])


def test_a_piecewise_rate_changes_at_its_times_and_ends() -> None:
    arrivals = poisson("400@15s,0@5s,8000@5s", start=100.0)
    times = arrivals.take(math.inf, MANY) - 100.0
    slow, none, fast = (np.sum((times >= a) & (times < b)) for a, b in ((0, 15), (15, 20), (20, 25)))
    assert slow == pytest.approx(6000, abs=4 * math.sqrt(6000))
    assert none == 0
    assert fast == pytest.approx(40_000, abs=4 * math.sqrt(40_000))
    assert times[-1] < 25
    assert arrivals.head() == math.inf
    assert kolmogorov_smirnov(np.diff(times[times < 15]), 400) < 1.63
    assert kolmogorov_smirnov(np.diff(times[times >= 20]), 8000) < 1.63


def test_a_last_piece_without_an_end_continues() -> None:
    times = poisson("10@1s,1000").take(11, MANY)
    assert len(times) == pytest.approx(10_010, abs=450)


def test_due_streams_are_taken_in_order_of_their_first_due_time() -> None:
    schedule = Schedule(seed=3)
    for number in range(27):
        schedule.add(f"s{number}", parse_rate("1500"), 0.0)
    taken: dict[str, list[float]] = {name: [] for name in schedule}
    for tick in range(1, 1001):
        due = schedule.take(tick / 1000, MANY)
        firsts = [each.times[0] for each in due]
        assert firsts == sorted(firsts)
        for each in due:
            taken[each.stream] += each.times.tolist()
        next_due = schedule.next_due()
        assert next_due is not None
        assert next_due > tick / 1000
    for name, times in taken.items():
        expected = PoissonArrivals(parse_rate("1500"), 0.0, 3, name).take(1.0, MANY)
        np.testing.assert_array_equal(times, expected)


def test_a_stream_that_joins_starts_then_and_does_not_affect_the_others() -> None:
    alone, joined = Schedule(seed=5), Schedule(seed=5)
    alone.add("old", parse_rate("100"), 0.0)
    joined.add("old", parse_rate("100"), 0.0)
    before = joined.take(10, MANY)
    joined.add("new", parse_rate("100"), 10.0)
    after = {each.stream: each.times for each in joined.take(20, MANY)}
    assert after["new"][0] > 10
    assert len(after["new"]) == pytest.approx(1000, abs=130)
    together = np.concatenate([before[0].times, after["old"]])
    np.testing.assert_array_equal(together, alone.take(20, MANY)[0].times)
    with pytest.raises(ValueError, match="'new' is already in the schedule"):
        joined.add("new", parse_rate("1"), 20.0)


def test_a_held_stream_waits_and_the_others_continue() -> None:
    schedule = Schedule()
    schedule.add("held", parse_rate("100"), 0.0)
    schedule.add("free", parse_rate("100"), 0.0)
    schedule.hold("held")
    assert [each.stream for each in schedule.take(5, MANY)] == ["free"]
    assert schedule.held("held")
    schedule.release("held")
    waited = schedule.take(5, MANY)
    assert [each.stream for each in waited] == ["held"]
    assert len(waited[0].times) == pytest.approx(500, abs=90)
    schedule.remove("free")
    schedule.hold("held")
    assert schedule.next_due() is None
    assert list(schedule) == ["held"]


def test_flat_out_streams_take_turns() -> None:
    schedule = Schedule()
    schedule.add("a", parse_rate("max"), 0.0)
    schedule.add("b", parse_rate("max"), 0.0)
    assert [(each.stream, len(each.times)) for each in schedule.take(0.5, 10)] == [("a", 10), ("b", 10)]
    assert schedule.next_due() == -math.inf


def test_a_stream_whose_rate_ended_is_removed() -> None:
    schedule = Schedule()
    schedule.add("short", parse_rate("100@1s"), 0.0)
    schedule.take(2, MANY)
    assert not schedule
    assert schedule.next_due() is None


@pytest.mark.parametrize("text", ["500", "0.5", "max", "40@150s,80@50s", "40@90s,80", "0@1s,5"])
def test_rates_read_back_the_same(text: str) -> None:
    assert str(parse_rate(text)) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fast", "has the part 'fast': expected rows per second such as 500"),
        ("", "has the part ''"),
        ("-1", "has -1 rows per second: give 0 to"),
        ("nan", "has nan rows per second"),
        ("inf", "has inf rows per second"),
        ("40,80@50s", "has a part without a duration before its last one"),
        ("40@150,80@50s", "'150'"),
        ("40@0s,5", "has a part with a duration of 0"),
        ("0", "is always zero"),
    ],
)
def test_invalid_rates_are_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidRate, match=words):
        parse_rate(text)


def test_streams_have_their_own_rate_or_the_common_one() -> None:
    rates = parse_rates(["500", "doors=20"], ["doors", "readings"])
    assert {name: str(rate) for name, rate in rates.items()} == {"doors": "20", "readings": "500"}
    with pytest.raises(InvalidRate, match="is for 'windows', which is not fed: fed are doors"):
        parse_rates(["windows=5"], ["doors"])
    with pytest.raises(InvalidRate, match="no rate for readings"):
        parse_rates(["doors=5"], ["doors", "readings"])


def test_lags_are_right_within_five_percent() -> None:
    lags = Lags()
    one, two = lags.add_stream(), lags.add_stream()
    assert lags.quantile(0.5) is None
    assert lags.worst(one) is None
    lags.leaving(one, 7.0 - np.linspace(0.0005, 0.1, 1000))
    assert lags.quantile(0.5) is None
    lags.sent(7.0)
    assert lags.quantile(0.5) == pytest.approx(0.05, rel=0.06)
    assert lags.quantile(0.99, one) == pytest.approx(0.099, rel=0.06)
    lags.leaving(two, np.full(9000, 5.0))
    lags.sent(7.0)
    assert lags.quantile(0.5) == pytest.approx(2.0, rel=0.06)
    assert lags.quantile(0.5, one) == pytest.approx(0.05, rel=0.06)
    assert (lags.worst(one), lags.worst()) == (pytest.approx(0.1), 2.0)


def test_lags_of_many_streams_are_counted_by_stream() -> None:
    together, alone = Lags(), Lags()
    for each in (together, alone):
        for _ in range(3):
            each.add_stream()
    random = np.random.default_rng(4)
    for moment in range(1, 200):
        streams, due = random.integers(0, 3, 20), moment - random.exponential(0.01, 20)
        together.leaving(streams, due)
        for stream in range(3):
            alone.leaving(stream, due[streams == stream])
        together.sent(float(moment))
        alone.sent(float(moment))
    for stream in (0, 1, 2, None):
        assert together.worst(stream) == alone.worst(stream)
        for share in (0.01, 0.5, 0.99):
            assert together.quantile(share, stream) == alone.quantile(share, stream)


def test_upcoming_times_are_those_that_are_taken() -> None:
    whole = poisson("1500").take(5, MANY)
    arrivals = poisson("1500")
    taken: list[float] = []
    for number in range(40):
        ahead = arrivals.upcoming(number / 10 + 0.05, 700)
        np.testing.assert_array_equal(ahead, whole[len(taken) : len(taken) + len(ahead)])
        assert len(ahead) in (700, np.sum(whole <= number / 10 + 0.05) - len(taken))
        arrivals.advance(len(ahead) // 2)
        taken += ahead[: len(ahead) // 2].tolist()
        taken += arrivals.take(number / 10, 50).tolist()
    np.testing.assert_array_equal(taken, whole[: len(taken)])
    ended = poisson("100@1s")
    assert len(ended.upcoming(math.inf, MANY)) == len(poisson("100@1s").take(9, MANY))


def test_a_lent_stream_is_not_scheduled_until_it_is_given_back() -> None:
    schedule, other = Schedule(seed=2), Schedule(seed=2)
    for each in (schedule, other):
        each.add("lent", parse_rate("100"), 0.0)
        each.add("kept", parse_rate("100"), 0.0)
    schedule.lend("lent")
    assert [each.stream for each in schedule.take(1, MANY)] == ["kept"]
    assert len(schedule) == 2
    schedule["lent"].advance(len(schedule["lent"].upcoming(0.5, MANY)))
    schedule.give_back("lent")
    rest = schedule.take(1, MANY)
    whole = {each.stream: each.times for each in other.take(1, MANY)}
    np.testing.assert_array_equal(rest[0].times, whole["lent"][whole["lent"] > 0.5])
    schedule.lend("lent")
    schedule.remove("lent")
    schedule.give_back("lent")
    assert list(schedule) == ["kept"]
