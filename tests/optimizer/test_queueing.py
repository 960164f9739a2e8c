"""Queueing formulas and estimates from them, by numbers that are computed by hand."""

from __future__ import annotations

from math import inf

import pytest

from mavstream_server.optimizer.admission.cost_history import Demand
from mavstream_server.optimizer.admission.occupancy import TURN_S, ClassLoad, Occupancy
from mavstream_server.optimizer.admission.queueing import (
    Stream,
    capacity,
    cobham,
    cycle,
    percentile,
    pollaczek_khinchine,
    wait_behind,
)

MS = 1e-3
WEIGHTS = {"H": 6.0, "C": 3.0, "N": 1.0}


def constant(rate: float, mean: float) -> Stream:
    return Stream(rate, mean, mean * mean)


def test_waiting_times_in_order_of_arrival() -> None:
    # One of 50 us and one of 400 us, 0.3 and 0.4 of the time: (6000 * 50^2 + 1000 * 400^2) / 2 / 0.3.
    streams = [constant(6000, 50e-6), constant(1000, 400e-6)]
    assert pollaczek_khinchine(streams) == pytest.approx(291.667e-6, rel=1e-5)
    assert pollaczek_khinchine([constant(1000, 1 * MS)]) == inf


def test_waiting_times_by_priority() -> None:
    first, second = cobham([constant(8000, 50e-6), constant(1000, 400e-6)])
    residual = (8000 * 50e-6**2 + 1000 * 400e-6**2) / 2
    assert (first, second) == (pytest.approx(residual / 0.6), pytest.approx(residual / (0.6 * 0.2)))
    assert cobham([constant(500, 1 * MS), constant(600, 1 * MS)])[1] == inf


def test_a_single_class_waits_the_same_in_every_order() -> None:
    alone = [constant(500, 1 * MS)]
    assert cobham(alone) == [pollaczek_khinchine(alone)] == [pytest.approx(0.5 * MS)]


@pytest.mark.parametrize(
    ("name", "demands", "room"),
    [
        ("H", {"H": 0.1, "C": 0.5, "N": 0.9}, 0.6),  # both others need more than their shares
        ("H", {"H": 0.1, "C": 0.1, "N": 0.05}, 0.85),  # both need less than their shares
        ("H", {"C": 0.1, "N": 0.9}, 0.9 * 6 / 7),  # C leaves some of its share, and N its share of the rest
        ("N", {"H": 0.1, "C": 0.5}, 0.4),
        ("N", {"H": 0.9, "C": 0.9, "N": 0.0}, 0.1),
        ("N", {}, 1.0),
    ],
)
def test_the_capacity_of_a_class_under_sharing_by_priority(
    name: str, demands: dict[str, float], room: float
) -> None:
    assert capacity(name, WEIGHTS, demands) == pytest.approx(room)


def test_a_round_grows_with_the_work_on_rows() -> None:
    assert cycle(1 * MS, 1.0, 0.0) == pytest.approx(1 * MS)
    assert cycle(1 * MS, 1.0, 0.75) == pytest.approx(4 * MS)
    assert cycle(1 * MS, 0.5, 0.5) == inf


def test_percentiles_of_exponential_times() -> None:
    assert percentile(10.0, 95) == pytest.approx(29.957, rel=1e-4)
    assert percentile(10.0, 50) == pytest.approx(6.931, rel=1e-3)


def test_without_queue_and_work_there_is_no_wait() -> None:
    assert wait_behind(0.0, 0.0, 0.0) == 0.0


# The engine, divided among classes


def one_class(busy: float, turns: float, queries: int = 1000) -> Occupancy:
    return Occupancy({"default": ClassLoad(1, queries, busy, turns)}, by_priority=True)


def test_one_class_with_room_is_m_m_1() -> None:
    # Turns of 1 ms, half of the time: 1 / (1 - 0.5).
    assert one_class(0.5, 500).response("default").mean == pytest.approx(2 * MS)
    assert one_class(0.8, 800).response("default").mean == pytest.approx(5 * MS)


def test_a_busy_engine_with_short_turns_has_room_for_longer_ones() -> None:
    """Turns of 35 us are nearly all overhead: even ten times as many rows fit in, in longer turns."""
    short = one_class(0.99, 0.99 / 35e-6, queries=10)
    response = short.response("default")
    work = 0.99 * (1 - TURN_S / 35e-6)
    assert response.mean == pytest.approx(10 * TURN_S / (1 - work) + 35e-6)
    assert response.mean < 1 * MS


def test_more_work_than_time_is_an_overload() -> None:
    assert not one_class(1.3, 100).response("default").stable
    assert one_class(0.9, 100).response("default").stable


def test_an_overloaded_class_does_not_take_the_capacity_of_another() -> None:
    classes = {"high": ClassLoad(9, 1, 0.2, 200), "low": ClassLoad(1, 1, 3.0, 300)}
    shared = Occupancy(classes, by_priority=True)
    assert shared.response("high").room == pytest.approx(0.9)
    assert shared.response("high").stable
    assert not shared.response("low").stable
    in_line = Occupancy(classes, by_priority=False)
    assert not in_line.response("high").stable


def test_one_more_query_is_added_to_its_class() -> None:
    before = Occupancy({"high": ClassLoad(9, 2, 0.2, 200)}, by_priority=True)
    after = before.plus("low", 1, Demand(rows=1000, turns=10, work=0.1, memory=0, row_bytes=8))
    assert after.busy == pytest.approx(0.3)
    assert after.classes["low"] == ClassLoad(1, 1, 0.1, 10)
    assert after.classes["high"] == before.classes["high"]
    assert after.response("high").mean > before.response("high").mean
