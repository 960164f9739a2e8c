"""The load over the last seconds; inversions between classes and starvation, scripted and in an engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mavstream_server.core.metrics import ClassMetrics, EngineMetrics, Latency
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.reporting import class_metrics, engine_metrics
from mavstream_server.optimizer.admission.load import Arrivals, LoadSample, SlidingLoad
from mavstream_server.optimizer.fairness import ClassFairness, fairness
from mavstream_server.testing import ManualClock, ScriptedStream, run_plan

PRIORITIES = {"high": 9, "mid": 3, "low": 1}
MS = 1_000_000


@dataclass
class ScriptedClass:
    queries: int = 1
    answers: int = 0
    total: int = 0
    backlog: int = 0
    busy: int = 0

    def answer(self, count: int, ms: float) -> None:
        self.answers += count
        self.total += int(count * ms * MS)

    @property
    def stats(self) -> ClassMetrics:
        latency = Latency(self.answers, self.total, 10**9, {100: self.answers})
        return ClassMetrics(self.queries, 0, self.answers, 0, 0, self.backlog, latency)


@dataclass
class ScriptedServer:
    """A server whose metrics a test sets."""

    classes: dict[str, ScriptedClass] = field(default_factory=dict)
    load: SlidingLoad = field(default_factory=lambda: SlidingLoad(10.0))
    at: float = 0.0
    pid: int = 1
    slices: int = 0
    rows: int = 0

    def look(self, seconds: float = 2.0) -> None:
        self.at += seconds
        busy = {name: one.busy for name, one in self.classes.items()}
        totals = EngineMetrics(
            self.pid, "cqc", int(self.at * 1e9), sum(busy.values()), busy, self.slices, (), 0, 0
        )
        classes = {name: one.stats for name, one in self.classes.items()}
        self.load.add(LoadSample(self.at, totals, classes, {"s": Arrivals(self.rows, self.rows // 10)}))

    def fairness(self) -> dict[str, ClassFairness]:
        return fairness(self.load, PRIORITIES)


def server(*names: str) -> ScriptedServer:
    made = ScriptedServer({name: ScriptedClass() for name in names})
    made.look()
    return made


# The load


def test_shares_turns_and_rates_are_those_of_the_last_seconds() -> None:
    made = server("high", "low")
    assert (made.load.utilisation, made.load.turns, made.load.arrivals("s")) == (0, 0, None)
    for _ in range(10):
        made.classes["high"].busy += 500 * MS
        made.classes["low"].busy += 100 * MS
        made.slices += 1000
        made.rows += 4000
        made.look()
    assert made.load.seconds == pytest.approx(10)
    assert made.load.utilisation == pytest.approx(0.3)
    assert (made.load.busy("high"), made.load.busy("low"), made.load.busy("none")) == (
        pytest.approx(0.25),
        pytest.approx(0.05),
        0,
    )
    assert made.load.turns == pytest.approx(500)
    assert made.load.arrivals("s") == (pytest.approx(2000), pytest.approx(200))
    assert made.load.arrivals("none") is None
    made.rows = 0
    made.look()
    assert made.load.arrivals("s") is None  # the class was created again


def test_a_new_engine_starts_a_new_history() -> None:
    made = server("high")
    made.classes["high"].busy = 1000 * MS
    made.look()
    assert made.load.utilisation == pytest.approx(0.5)
    made.pid, made.classes["high"].busy = 2, 0
    made.look()
    assert (made.load.seconds, made.load.utilisation) == (0, 0)


def test_answers_of_removed_queries_are_excluded() -> None:
    made = server("low")
    made.classes["low"].queries = 2
    made.classes["low"].answer(10, 5)
    made.look()
    made.classes["low"] = ScriptedClass(queries=1, answers=4, total=4 * 5 * MS)  # one of the two was removed
    made.look()
    made.classes["low"].answer(10, 7)
    made.look()
    assert made.load.latency("low").count == 20
    assert made.load.latency("low").mean_ms == pytest.approx(6)


# Inversions


def test_a_class_with_more_latency_than_the_next_one_is_inverted() -> None:
    made = server("high", "mid", "low")
    for name, ms in (("high", 2), ("mid", 6), ("low", 4)):
        made.classes[name].answer(10, ms)
    made.look()
    found = made.fairness()
    assert found["high"] == ClassFairness(pytest.approx(1 / 3), "mid", False)
    assert found["mid"] == ClassFairness(pytest.approx(1.5), "low", False)
    assert found["low"] == ClassFairness(None, None, False)
    assert [name for name, one in found.items() if one.inverted] == ["mid"]


def test_a_class_without_answers_is_not_compared() -> None:
    made = server("high", "mid", "low")
    made.classes["high"].answer(10, 8)
    made.classes["low"].answer(10, 4)
    made.look()
    assert made.fairness()["high"] == ClassFairness(pytest.approx(2), "low", False)
    assert made.fairness()["mid"].inversion_ratio is None


def test_equally_important_classes_are_not_compared() -> None:
    made = server("a", "b", "c")
    for name, ms in (("a", 8), ("b", 2), ("c", 4)):
        made.classes[name].answer(10, ms)
    made.look()
    found = fairness(made.load, {"a": 5, "b": 5, "c": 1})
    assert (found["a"].inversion_ratio, found["b"].inversion_ratio) == (pytest.approx(2), pytest.approx(0.5))
    assert found["a"].next_class == found["b"].next_class == "c"


def test_an_inversion_ends_with_the_seconds_of_its_window() -> None:
    made = server("high", "low")
    made.classes["high"].answer(10, 8)
    made.classes["low"].answer(10, 4)
    made.look()
    assert made.fairness()["high"].inverted
    for _ in range(6):
        made.classes["high"].answer(10, 1)
        made.classes["low"].answer(10, 4)
        made.look()
    assert not made.fairness()["high"].inverted


# Starvation


def test_a_class_with_rows_and_without_turns_is_starved() -> None:
    made = server("high", "low")
    made.classes["low"].backlog = 1000
    for _ in range(2):
        made.classes["high"].busy += 2000 * MS
        made.look()
    assert not made.fairness()["low"].starved  # not for long enough yet
    for _ in range(5):
        made.look()
    assert made.fairness()["low"].starved
    assert not made.fairness()["high"].starved
    made.classes["low"].busy += 1
    made.look()
    assert not made.fairness()["low"].starved


def test_a_class_without_rows_is_not_starved() -> None:
    made = server("low")
    for _ in range(6):
        made.look()
    assert not made.fairness()["low"].starved


# In an engine


class CostlyClock(ManualClock):
    """A clock whose monotonic time advances whenever it is read."""

    def monotonic(self) -> int:
        self.advance(nanoseconds=100_000)
        return self.now()


RARE = {
    "in": {"op": "source", "stream": "fires"},
    "fire": {"op": "select", "input": "in", "where": "x % 10 = 0"},
}
OFTEN = {
    "in": {"op": "source", "stream": "records"},
    "all": {"op": "select", "input": "in", "where": "x >= 0"},
}


@pytest.mark.parametrize(("policy", "low", "high"), [("hr", 1.5, 10), ("cqc", 0, 0.9)])
def test_rate_based_policies_invert_classes_with_rare_answers_and_class_policies_do_not(
    tmp_path: Path, policy: str, low: float, high: float
) -> None:
    """The dissertation's example: fires are rare, so `hr` prefers queries that answer often."""
    clock = CostlyClock()
    streams = [ScriptedStream(tmp_path, name, "x int", clock) for name in ("fires", "records")]
    engine = Engine(clock, policy)
    engine.policy_host.priorities |= {"high": 9, "low": 1}
    for one in streams:
        engine.attach(one.name, one.reader)
    run_plan(RARE, "fire", streams, engine=engine, id_="fire", class_name="high")
    run_plan(OFTEN, "all", streams, engine=engine, id_="all", class_name="low")
    load, started = SlidingLoad(), clock.monotonic()

    def look() -> None:
        metrics = class_metrics(engine).classes
        load.add(LoadSample(clock.now() / 1e9, engine_metrics(engine, started), metrics, {}))

    look()
    for _ in range(50):
        for one in streams:
            one.rows(*((number,) for number in range(1000)))
        for _ in range(5):
            engine.step()
        look()
    found = fairness(load, engine.policy_host.priorities)["high"]
    assert found.next_class == "low"
    assert found.inversion_ratio is not None
    assert low < found.inversion_ratio < high
    for one in streams:
        one.close()
