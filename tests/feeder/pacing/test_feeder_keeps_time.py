"""The test of arrival times that the feeder benchmark uses, and the benchmark on little data."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mavstream_feeder.pacing.arrivals import PoissonArrivals
from mavstream_feeder.pacing.rates import constant

ROOT = Path(__file__).parents[3]
RATE = 1500


@pytest.fixture
def kolmogorov(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import the module: the package is run from the project root and never installed."""
    monkeypatch.syspath_prepend(str(ROOT))
    from bench.data import kolmogorov

    return kolmogorov


def due_times(number: int, count: int = 10_001) -> np.ndarray:
    return PoissonArrivals(constant(RATE), 0.0, 11, f"s{number}").take(np.inf, count)


@pytest.mark.parametrize(
    ("value", "p"),
    [
        (0.4, 0.9972),
        (0.8276, 0.5),
        (1.0, 0.2700),
        (1.2238, 0.1),
        (1.3581, 0.05),
        (1.6276, 0.01),
        (1.9495, 0.001),
    ],
)
def test_the_distribution_has_the_published_values(kolmogorov: ModuleType, value: float, p: float) -> None:
    assert kolmogorov.survival(value) == pytest.approx(p, abs=5e-5)
    assert kolmogorov.survival(0.0) == 1.0


def test_the_two_series_agree_where_they_meet(kolmogorov: ModuleType) -> None:
    assert kolmogorov.survival(1.18 - 1e-9) == pytest.approx(kolmogorov.survival(1.18 + 1e-9), abs=1e-8)


def test_p_values_of_exponential_gaps_are_uniform(kolmogorov: ModuleType) -> None:
    random = np.random.default_rng(5)
    found = [kolmogorov.exponential_p(random.exponential(0.5, 200), 2.0) for _ in range(1000)]
    assert np.mean(np.array(found) < 0.1) == pytest.approx(0.1, abs=0.03)
    assert np.median(found) == pytest.approx(0.5, abs=0.06)


def test_gaps_of_another_rate_or_shape_are_detected(kolmogorov: ModuleType) -> None:
    random = np.random.default_rng(5)
    assert kolmogorov.exponential_p(random.exponential(1 / 1400, 10_000), RATE) < 0.001
    assert kolmogorov.exponential_p(random.uniform(0, 2 / RATE, 10_000), RATE) < 0.001


def test_due_times_of_all_streams_pass(kolmogorov: ModuleType) -> None:
    found = [kolmogorov.exponential_p(np.diff(due_times(number)), RATE) for number in range(27)]
    assert min(found) > 0.01


def shared(due: np.ndarray, tick: float) -> np.ndarray:
    return np.ceil(due / tick) * tick


def ticks(times: np.ndarray, tick: float) -> np.ndarray:
    return np.arange(1, np.ceil(times[-1] / tick) + 1) * tick


def spread_p(kolmogorov: ModuleType, due: np.ndarray, tick: float, longest: float) -> float:
    """Return the p-value of due times that are sent every tick, with rows of other streams each time."""
    return kolmogorov.exponential_p(
        np.diff(kolmogorov.spread(shared(due, tick), ticks(due, tick), longest)), RATE
    )


def test_arrivals_rounded_to_a_millisecond_pass_and_coarser_ones_do_not(kolmogorov: ModuleType) -> None:
    due = due_times(0)
    assert kolmogorov.exponential_p(np.diff(shared(due, 0.001)), RATE) < 0.001
    assert spread_p(kolmogorov, due, 0.001, 0.001) > 0.01
    assert spread_p(kolmogorov, due, 0.005, 0.001) < 0.001
    assert spread_p(kolmogorov, due, 0.005, 1.0) > 0.01


@pytest.mark.parametrize("tick", [0.0003, 0.0007, 0.001])
def test_p_values_do_not_depend_on_the_rate_of_messages(kolmogorov: ModuleType, tick: float) -> None:
    # A stream that has no row in a message must not have its next rows spread over the time of two.
    found = [spread_p(kolmogorov, due_times(number), tick, 0.001) for number in range(27)]
    assert sum(p > 0.01 for p in found) >= 25
    assert np.median(found) == pytest.approx(0.5, abs=0.2)


def test_spreading_moves_no_row_across_the_arrival_of_another_message(kolmogorov: ModuleType) -> None:
    moments = np.array([1.0, 4.5, 5.0, 5.5])
    times = kolmogorov.spread(np.array([1.0, 1.0, 5.0, 5.0, 5.5]), moments, 2.0)
    assert (np.diff(times) >= 0).all()
    assert -1.0 <= times[0] <= times[1] <= 1.0
    assert 4.5 <= times[2] <= times[3] <= 5.0 <= times[4] <= 5.5


def test_the_bare_socket_delivers_every_row_and_none_before_it_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from bench.data.bare_feed import bare_arrivals

    dues = [np.array([0.001, 0.0125, 0.013]), np.array([0.0015])]
    arrived = bare_arrivals(dues, 0.001)
    assert [len(each) for each in arrived] == [3, 1]
    for due, times in zip(dues, arrived, strict=True):
        assert (np.diff(times) >= 0).all()
        assert (times >= due).all()


@pytest.mark.long
def test_the_benchmark_counts_every_row_and_reports_all_metrics() -> None:
    program = (
        "import argparse, json; from bench.data import feeder; parser = argparse.ArgumentParser(); "
        "feeder.add_options(parser); print(json.dumps(feeder.run(parser.parse_args()).metrics))"
    )
    words = ("--seconds", "1", "--streams", "2", "--rate", "300", "--rows", "20000")
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    metrics = json.loads(done.stdout)
    assert metrics["correct"] is True
    assert {"lag_p99_ms", "ks_p", "ks_bare_p", "max_tuples_per_s", "coalescing_ms"} <= metrics.keys()
    # The schedule is the seed's, whatever the machine does.
    assert metrics["ks_due_p"]["least"] > 0.01
