"""Parts of the demo's story: the homes, the alarm of a fire, latencies of an act, and how they are shown."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mavstream_feeder.demo.alarms import FireAlarms
from mavstream_feeder.demo.director import acts_until
from mavstream_feeder.demo.homes import SPEED, Homes
from mavstream_feeder.demo.latencies import Latencies
from mavstream_feeder.demo.outcome import ClassMetrics, Outcome
from mavstream_feeder.demo.story import ACTS, Measured, Told
from mavstream_feeder.demo.view import View
from mavstream_feeder.input.sample import STREAMS
from mavstream_feeder.pacing.rates import Recorded

SECOND = 1_000_000


@pytest.fixture(scope="module")
def homes() -> Homes:
    return Homes()


def alarm(home: int, room: str, celsius: float, at: int) -> pa.RecordBatch:
    """An answer of the query `fire`."""
    columns = {"home": [home], "room": [room], "celsius": [celsius]}
    return pa.RecordBatch.from_pydict({**columns, "at": pa.array([at], pa.timestamp("us", "UTC"))})


def test_the_fire_breaks_out_when_it_is_wanted(homes: Homes) -> None:
    (fire,) = homes.fires
    assert (fire.home, fire.room) == (2, "living")
    assert homes.clock(fire.began, 0.0) == "11:38"
    for seconds in (2.0, 17.0, 51.0, 60.0):
        origin = homes.origin(seconds)
        day = 86_400 * SECOND
        assert (fire.began - origin) % day == pytest.approx(seconds * SPEED * SECOND % day)
        assert homes.clock(origin, seconds) == "11:38"


def test_homes_are_fed_from_the_wanted_time_on(homes: Homes) -> None:
    (fire,) = homes.fires
    sources = homes.sources(fire.began, Recorded(origin=fire.began / SECOND, speed=SPEED))
    assert set(sources) == set(STREAMS)
    rows = sources["temperature"].take(np.zeros(100, dtype=np.int64))
    assert rows is not None
    burning = rows.filter(pa.compute.greater(rows["celsius"], 30))
    assert set(burning["home"].to_pylist()) == {2}
    assert burning["celsius"][0].as_py() == 32.2
    # Stamped with due times, with the fields of the demo's streams.
    assert tuple(rows.schema.names) == STREAMS["temperature"].schema().names
    assert set(rows["at"].cast(pa.int64()).to_pylist()) == {0}


def test_an_alarm_is_for_a_fire_if_its_reading_was_recorded_during_it(homes: Homes) -> None:
    alarms = FireAlarms(homes)
    alarms.take(alarm(1, "living", 32.2, at=1000), received_us=9000)
    alarms.take(alarm(2, "kitchen", 32.2, at=1000), received_us=9000)
    alarms.take(alarm(2, "living", 32.3, at=1000), received_us=9000)
    assert alarms.found == []
    alarms.take(alarm(2, "living", 32.2, at=1000), received_us=9000)
    alarms.take(alarm(2, "living", 34.9, at=2000), received_us=9500)
    (found,) = alarms.found
    assert found.as_json() == {
        "home": 2,
        "room": "living",
        "celsius": 32.2,
        "after_s": 40.0,
        "delay_ms": 8.0,
    }


def test_a_fire_without_alarm_is_a_failed_check(homes: Homes) -> None:
    told = Told((), (), homes.fires)
    assert told.unfound() == ["the fire in home 2, living, raised no alarm"]
    assert Told((), (), ()).unfound() == []


def test_latencies_of_an_act_are_those_between_two_moments() -> None:
    before = {"latency_buckets": {"80": 1000}}
    after = {"latency_buckets": {"80": 1000, "160": 98, "200": 2}}
    found = Latencies.between(before, after)
    assert found.answers == 100
    assert found.p50 == pytest.approx(2 ** (161 / 8) / 1e6, abs=0.001)
    assert found.p99 == pytest.approx(2 ** (201 / 8) / 1e6, abs=0.001)
    assert Latencies.between(after, after) == Latencies(0, None, None)


def test_acts_follow_each_other_until_the_end() -> None:
    acts = acts_until(60.0)
    assert [begin for _, begin, _ in acts] == [0.0, 15.0, 30.0, 45.0]
    assert acts[-1][2] == 60.0


def test_the_story_is_plain_text_of_80_columns(homes: Homes, capsys: pytest.CaptureFixture[str]) -> None:
    (fire,) = homes.fires
    alarms = FireAlarms(homes)
    alarms.take(alarm(fire.home, fire.room, 32.2, at=1000), received_us=7100)
    classes = {name: Latencies(100, 3.0, 412.0) for name in ("alarms", "control", "comfort")}
    swift = {**classes, "alarms": Latencies(100, 3.0, 12.3)}
    acts = [Measured(act, act.policy or "cqc", 12.0, classes if act.policy else swift) for act in ACTS]
    metrics = {name: ClassMetrics(1, 7, 10, dict.fromkeys(("mean", "p50", "p95", "p99"))) for name in classes}
    view = View(live=True)
    for act in ACTS:
        view.act(act, act.policy or "cqc", "11:38")
    view.summary(60.0, Outcome(metrics, 20_000, 20_000, 0, (), Told(acts, alarms.found, homes.fires)))
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "\x1b" not in shown
    slow, quick = (shown[shown.index(f"  {name} ") :].splitlines()[0] for name in ("rr", "cqc"))
    assert slow.count("█") > 10 * quick.count("█") > 0
    assert "412 ms" in slow
    assert "12 ms" in quick
    assert "found after 40 s in the home" in shown
    assert "20,000 acknowledged, 0 lost" in shown


def test_metrics_without_a_story_fit_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    latency = {"mean": 2244.13, "p50": 4.04, "p95": 159.6, "p99": 15754.01}
    metrics = {name: ClassMetrics(6, 7, 1_234_567, latency) for name in ("alarms", "control", "comfort")}
    View(live=True).summary(60.0, Outcome(metrics, 1_234_567, 1_234_567, 0))
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    for words in ("1,234,567 rows in 60.0 s", "priority", "2.2 s", "4.0 ms", "160 ms", "15.8 s"):
        assert words in shown
