"""Metrics of runs, against numbers computed by hand and numbers of the papers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mavstream_server.simulation import simulate
from mavstream_server.simulation.entry import compare
from mavstream_server.simulation.report.metrics import (
    inversion_ratio,
    mean_by_window,
    response_metrics,
    starvation_ratio,
    throughput,
    weighted_mean,
)
from mavstream_server.simulation.workload.loading import parse
from mavstream_server.simulation.workload.model import Workload

MS = 1_000_000


def numbers(*values: float) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array([int(value * MS) for value in values], np.int64)


def test_the_weighted_mean_is_that_of_the_dissertation() -> None:
    """Scale_CQs: from the middles of the published class means follows the published weighted mean."""
    published = [(50, 1.42), (40, 1.785), (30, 2.605), (20, 3.065), (10, 3.99)]
    mean = weighted_mean(published)
    assert mean is not None
    assert 2.11 <= mean <= 2.18
    assert weighted_mean([(3, 2.0), (1, None)]) == 2.0
    assert weighted_mean([]) is None


def test_the_inversion_ratio_compares_neighbours() -> None:
    assert inversion_ratio([(6, 1.0), (3, 2.0), (1, 9.0)]) == 0
    # 6/3 x (3/2 - 1) = 1, and between the second and the third there is none.
    assert inversion_ratio([(6, 3.0), (3, 2.0), (1, 9.0)]) == pytest.approx(1)
    # In any order of classes; a class without answers is ignored.
    assert inversion_ratio([(1, 9.0), (3, 2.0), (4, None), (6, 3.0)]) == pytest.approx(1)
    assert inversion_ratio([(30, 5.0), (30, 1.0)]) == 0


def test_starvation_is_the_lowest_class_over_the_highest() -> None:
    assert starvation_ratio([(1, 9.0), (3, 20.0), (6, 3.0)]) == 3
    assert starvation_ratio([(1, None)]) is None


def test_percentiles_of_a_class() -> None:
    metrics = response_metrics(2, numbers(*range(101)))
    assert metrics.mean_ms == 50
    assert [metrics.at(level) for level in (None, 10, 50, 95, 99)] == [50, 10, 50, 95, 99]
    assert response_metrics(2, numbers()).mean_ms is None


def test_windows_of_time() -> None:
    found = mean_by_window(numbers(1, 5, 12, 31), numbers(2, 4, 7, 9), 35 * MS, 10 * MS) / MS
    assert found[[0, 1, 3]].tolist() == [3, 7, 9]
    assert np.isnan(found[2])
    # The last window is incomplete.
    assert throughput(numbers(1, 5, 12, 31), 35 * MS, 10 * MS).tolist() == [200, 100, 0]


def two_classes(**more: Any) -> Workload:
    """Class a is slow at first and fast later; b stays as it is; they exchange priorities at 2 s."""
    text = """
    seconds: 4
    statistics: declared
    sources: {service: direct}
    classes: {a: {priority: 2}, b: {priority: 1}}
    streams: {"*": {rate: 100, arrivals: fixed, size: 10}}
    cores: 2
    queries:
      - {id: a, class: a, operators: {o: {kind: output, input: s, cost_us: 3000}}}
      - {id: b, class: b, operators: {o: {kind: output, input: t, cost_us: 2000}}}
    changes:
      - {at: 1, operator: o, class: a, cost_us: 1000}
      - {at: 2, class: a, priority: 1}
      - {at: 2, class: b, priority: 2}
    """
    return parse("two", text, overrides=more)


def test_metrics_over_time_use_the_priorities_of_that_time() -> None:
    result = simulate(two_classes(), "mrr")
    responses = result.response_over_time(1.0)
    assert responses["a"].tolist() == pytest.approx([3, 1, 1, 1], abs=0.03)
    assert responses["b"].tolist() == [2, 2, 2, 2]
    # 2/1 x (3/2 - 1) = 1 at first; none when a is faster; then b is more important, and slower by half.
    assert result.inversion_over_time(1.0).tolist() == pytest.approx([1, 0, 2, 2], abs=0.05)
    assert result.throughput(1.0).tolist() == pytest.approx([200] * 4, abs=2)
    assert result.throughput_deviation(1.0) < 2
    assert result.seconds == 4
    assert result.utilisation == pytest.approx((0.1 * (3 + 1 + 1 + 1) + 4 * 0.2) / 8, rel=0.02)


def test_a_warm_up_is_excluded() -> None:
    result = simulate(two_classes(), "mrr", warm_up_s=1.01)
    assert result.classes["a"].mean_ms == pytest.approx(1)
    assert result.classes["a"].answers == pytest.approx(299, abs=2)


def test_policies_are_compared_on_the_same_tuples() -> None:
    found = compare("D", ["rr", ("abd", {"quota_us": 100}), "abd"], seconds=0.2, seed=3)
    assert list(found) == ["rr", "abd", "abd#2"]
    assert found["abd"].options["quota_us"] == 100
    assert found["abd#2"].options["quota_us"] == 50
    assert {result.counts.tuples for result in found.values()} == {found["rr"].counts.tuples}
    assert found["rr"].inversion(90) >= 0
    assert found["rr"].weighted_ms(95) is not None


def test_updates_against_inversions_are_counted() -> None:
    """Class 1 has all the load, so that it answers last, and the schedule is changed in its favour."""
    slow = {"rate_1": 2500.0, "rate_5": 200.0}
    corrected = simulate("5G_2", "mbd", {"inversion": "cascade"}, seconds=0.5, parameters=slow)
    assert corrected.convergence is not None
    assert corrected.convergence.updates > 0
    assert 0 < corrected.convergence.seconds <= 0.5
    left = simulate("5G_2", "mbd", {"inversion": "none"}, seconds=0.5, parameters=slow)
    assert left.convergence == (0, 0.0)
    assert simulate("5G_2", "mrr", seconds=0.05).convergence is None


def test_queue_memory_is_that_of_waiting_tuples() -> None:
    result = simulate("mavstream", "path_capacity", seconds=20)
    queues = result.queues
    # At 100 tuples/s on both streams, half is processed: the queues at the leaves grow all the time.
    assert queues.bytes.size == 20
    assert (np.diff(queues.bytes) > 0).mean() > 0.9
    assert queues.max_bytes == queues.bytes[-1]
    assert queues.bytes[-1] == pytest.approx(queues.tuples[-1] * 100, rel=0.05)
