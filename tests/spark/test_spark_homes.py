"""The model of homes and the plain workload: plausible, visible anomalies, deterministic. Without Spark."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from mavstream_protocol.tuples import decode_batch
from mavstream_spark.errors import InvalidJob
from mavstream_spark.generate.plain import cell_batch, cells_of, read_rate
from mavstream_spark.homes.batches import HomesPlan, sensor_batch, truth_batch
from mavstream_spark.homes.people import home_of
from mavstream_spark.homes.rooms import ROOMS, STREAMS
from mavstream_spark.homes.sensors import HomeDay
from mavstream_spark.homes.weather import daylight, outside

MARCH = 20_513
HOUR = 3_600_000_000


def days_with(kind: str, count: int = 3) -> list[HomeDay]:
    plan = HomesPlan(5, 60, MARCH, 1, 1.0)
    found = [today for today in map(plan.home_day, range(60)) if today.anomaly and today.anomaly.kind == kind]
    return found[:count]


def readings(today: HomeDay, stream: str) -> pa.Table:
    return pa.Table.from_batches([sensor_batch(today, stream)])


def during(table: pa.Table, today: HomeDay, settle: float = 0.0, room: str | None = None) -> pa.Table:
    """Return the rows from `settle` seconds after the anomaly's begin to its end."""
    assert today.anomaly is not None
    seconds = pc.divide(pc.cast(pc.cast(table.column("at"), pa.int64()), pa.float64()), 1e6)
    since = pc.subtract(seconds, today.day * 86_400)
    inside = pc.and_(
        pc.greater_equal(since, today.anomaly.begin + settle), pc.less(since, today.anomaly.end - 1)
    )
    found = table.filter(inside)
    return found if room is None else found.filter(pc.equal(found.column("room"), room))


@pytest.mark.parametrize("stream", STREAMS)
def test_rows_fit_their_stream_and_depend_on_seed_home_and_day_alone(stream: str) -> None:
    first = sensor_batch(HomeDay.of(1, 4, MARCH, 0.02), stream)
    decode_batch(STREAMS[stream].schema(), first)
    assert first.equals(sensor_batch(HomeDay.of(1, 4, MARCH, 0.02), stream))
    for other in (
        HomeDay.of(2, 4, MARCH, 0.02),
        HomeDay.of(1, 5, MARCH, 0.02),
        HomeDay.of(1, 4, MARCH + 1, 0.02),
    ):
        assert not first.equals(sensor_batch(other, stream))


def test_people_move_by_day_and_sleep_at_night() -> None:
    hours: list[int] = []
    for number in range(1, 21):
        hours += pc.hour(readings(HomeDay.of(0, number, MARCH, 0.0), "motion").column("at")).to_pylist()
    night, evening = (sum(hour in span for hour in hours) for span in ((1, 2, 3), (18, 19, 20)))
    assert evening > 8 * night > 0


def test_temperatures_have_daily_and_seasonal_cycles() -> None:
    noon, midnight = np.array([43_200.0]), np.array([0.0])
    assert daylight(0, MARCH, noon)[0] > 1000
    assert daylight(0, MARCH, midnight)[0] == 0
    january, july = MARCH - 45, MARCH + 140
    times = np.linspace(0, 86_400, 100)
    assert outside(0, july, times).mean() > outside(0, january, times).mean() + 10
    assert (daylight(0, july, times) > 0).mean() > (daylight(0, january, times) > 0).mean() + 0.2


def test_a_fire_is_hot_and_dry_in_its_room() -> None:
    for today in days_with("fire"):
        assert today.anomaly is not None
        room = ROOMS[today.anomaly.room]
        heat = during(readings(today, "temperature"), today, 400, room).column("celsius").drop_null()
        damp = during(readings(today, "humidity"), today, 5, room).column("percent").drop_null()
        assert pc.min(heat).as_py() > 50
        assert pc.max(damp).as_py() < 30
        before = HomeDay.of(5, today.home.number, MARCH, 0.0)
        assert pc.max(readings(before, "temperature").column("celsius")).as_py() < 35


def test_a_flood_is_wet() -> None:
    for today in days_with("flood"):
        assert today.anomaly is not None
        damp = during(readings(today, "humidity"), today, 5, ROOMS[today.anomaly.room]).column("percent")
        assert pc.min(damp).as_py() > 90


def test_an_intruder_opens_the_back_door_and_moves_while_nobody_does() -> None:
    for today in days_with("intrusion"):
        assert today.anomaly is not None
        doors = during(readings(today, "doors"), today, -0.5).to_pylist()
        assert any(row["door"] == "back" and row["open"] for row in doors)
        moves = readings(today, "motion")
        if today.home.skew == 0:
            strong = during(moves.filter(pc.greater(moves.column("level"), 0.8)), today)
            assert strong.num_rows > 20
        begin = np.array([today.anomaly.begin])
        assert not any(today.routine.awake(begin, room).any() for room in range(len(ROOMS)))


def test_without_heating_a_home_cools_down_and_its_heater_draws_nothing() -> None:
    for today in days_with("heating_failure"):
        usual = HomeDay.of(5, today.home.number, MARCH, 0.0)
        cold, warm = (during(readings(each, "temperature"), today, 3 * 3600) for each in (today, usual))
        assert pc.mean(cold.column("celsius")).as_py() < pc.mean(warm.column("celsius")).as_py() - 2
        power = during(readings(today, "power"), today)
        heater = power.filter(pc.equal(power.column("device"), "heater"))
        assert pc.max(heater.column("watts")).as_py() < 5


def test_the_ground_truth_names_each_anomaly_once() -> None:
    plan = HomesPlan(5, 60, MARCH, 1, 1.0)
    rows = [row for number in range(60) for row in truth_batch(plan.home_day(number)).to_pylist()]
    assert len(rows) == 60
    assert {row["kind"] for row in rows} == {"fire", "flood", "intrusion", "heating_failure"}
    assert all(row["at"] < row["until"] for row in rows)
    assert truth_batch(HomesPlan(5, 60, MARCH, 1, 0.0).home_day(0)).num_rows == 0


def test_sensors_have_faults() -> None:
    tables = [readings(HomeDay.of(3, number, MARCH, 0.0), "power") for number in range(1, 31)]
    together = pa.concat_tables(tables)
    missing = together.column("watts").null_count / together.num_rows
    distinct = together.group_by(together.column_names).aggregate([]).num_rows
    assert 0.002 < missing < 0.008
    assert 0.001 < 1 - distinct / together.num_rows < 0.006
    skewed = [home_of(3, number).skew for number in range(1, 301)]
    assert 3 <= sum(skew != 0 for skew in skewed) <= 25


def test_plain_rows_have_the_given_rates_and_exponential_gaps() -> None:
    rate = read_rate("40@150s,400@100s,0@50s")
    cells = cells_of(rate)
    batches = [cell_batch(1, 1, number, cell, 0) for number, cell in enumerate(cells)]
    times = np.concatenate([pc.cast(batch.column("at"), pa.int64()).to_numpy() for batch in batches]) / 1e6
    assert (np.diff(times) >= 0).all()
    slow, fast, none = (np.sum((times >= a) & (times < b)) for a, b in ((0, 150), (150, 250), (250, 300)))
    assert abs(slow - 6000) < 5 * np.sqrt(6000)
    assert abs(fast - 40_000) < 5 * np.sqrt(40_000)
    assert none == 0
    gaps = np.sort(np.diff(times[times >= 150]))
    # Kolmogorov-Smirnov against the exponential, at about p = 0.001.
    distance = np.abs(np.arange(1, len(gaps) + 1) / len(gaps) - (1 - np.exp(-400 * gaps))).max()
    assert distance < 1.95 / np.sqrt(len(gaps))


def test_cells_cover_the_rate_without_gaps() -> None:
    cells = cells_of(read_rate("1000@100s,10@10s"))
    assert cells[0].begin == 0
    assert all(abs(a.begin + a.seconds - b.begin) < 1e-9 for a, b in pairwise(cells))
    assert abs(cells[-1].begin + cells[-1].seconds - 110) < 1e-9


def test_a_rate_that_never_ends_is_refused() -> None:
    with pytest.raises(InvalidJob, match="never ends: say how long"):
        read_rate("500")
    with pytest.raises(InvalidJob, match="never ends"):
        read_rate("max")
