"""The test of arrival times that the feeder benchmark uses, and the benchmark on little data."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mavstream_feeder.arrivals import PoissonArrivals
from mavstream_feeder.rates import constant

ROOT = Path(__file__).parents[1]
RATE = 1500


@pytest.fixture
def kolmogorov(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import the module: the package is run from the project root and never installed."""
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import kolmogorov

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


def test_both_series_meet(kolmogorov: ModuleType) -> None:
    assert kolmogorov.survival(1.18 - 1e-9) == pytest.approx(kolmogorov.survival(1.18 + 1e-9), abs=1e-8)


def test_p_values_of_exponential_gaps_are_uniform(kolmogorov: ModuleType) -> None:
    random = np.random.default_rng(5)
    found = [kolmogorov.exponential_p(random.exponential(0.5, 200), 2.0) for _ in range(1000)]
    assert np.mean(np.array(found) < 0.1) == pytest.approx(0.1, abs=0.03)
    assert np.median(found) == pytest.approx(0.5, abs=0.06)


def test_gaps_of_another_rate_or_shape_are_found(kolmogorov: ModuleType) -> None:
    random = np.random.default_rng(5)
    assert kolmogorov.exponential_p(random.exponential(1 / 1400, 10_000), RATE) < 0.001
    assert kolmogorov.exponential_p(random.uniform(0, 2 / RATE, 10_000), RATE) < 0.001


def test_due_times_of_all_streams_pass(kolmogorov: ModuleType) -> None:
    found = [kolmogorov.exponential_p(np.diff(due_times(number)), RATE) for number in range(27)]
    assert min(found) > 0.01


def test_stamps_that_are_shared_for_a_millisecond_pass_and_lumps_do_not(kolmogorov: ModuleType) -> None:
    due = due_times(0)
    shared = np.ceil(due * 1000) / 1000
    assert kolmogorov.exponential_p(np.diff(shared), RATE) < 0.001
    assert kolmogorov.exponential_p(np.diff(kolmogorov.spread(shared, 0.001)), RATE) > 0.01
    lumps = np.ceil(due * 200) / 200
    assert kolmogorov.exponential_p(np.diff(kolmogorov.spread(lumps, 0.001)), RATE) < 0.001
    assert kolmogorov.exponential_p(np.diff(kolmogorov.spread(lumps, 1.0)), RATE) > 0.01


def test_spreading_moves_no_row_across_a_stamp(kolmogorov: ModuleType) -> None:
    times = kolmogorov.spread(np.array([1.0, 1.0, 5.0, 5.0, 5.5]), 2.0)
    assert (np.diff(times) >= 0).all()
    assert -1.0 <= times[0] <= times[1] <= 1.0
    assert 3.0 <= times[2] <= times[3] <= 5.0 <= times[4] <= 5.5


@pytest.mark.long
def test_the_benchmark_counts_every_row_and_tells_all_figures() -> None:
    program = (
        "import argparse, json; from bench import feeder; parser = argparse.ArgumentParser(); "
        "feeder.add_options(parser); print(json.dumps(feeder.run(parser.parse_args()).figures))"
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
    figures = json.loads(done.stdout)
    assert figures["correct"] is True
    assert {"lag_p99_ms", "ks_p", "max_tuples_per_s", "coalescing_ms"} <= figures.keys()
    # The schedule is the seed's, whatever the machine does.
    assert figures["ks_due_p"]["least"] > 0.01
