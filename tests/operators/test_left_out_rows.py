"""Every row that takes part in no answer is counted: as late, as missed, or as outside of all windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.conftest import MakeStream

from mavstream_protocol.scheduling import Sharing
from mavstream_server.engine.engine import Engine
from mavstream_server.planning.run_options import RunOptions
from mavstream_server.testing import ManualClock, PlanRun, ScriptedStream, run_plan

MS = 1000
TUMBLING = {"kind": "tumbling", "size": "10ms"}
WAYS = ((1, "rr", {}), (3, "rr", {"tuples": 1}), (7, "fifo", {}), (4096, "rr", {}))
"""Trains, policies and their options."""


def counting(window: dict[str, Any] = TUMBLING) -> dict[str, Any]:
    return {
        "in": {"op": "source", "stream": "readings"},
        "a": {"op": "aggregate", "input": "in", "window": window, "compute": {"n": "count(*)"}},
    }


@pytest.fixture
def readings(stream: MakeStream) -> ScriptedStream:
    return stream("readings", "ts timestamp, temp int", event_time="ts")


def at(*milliseconds: int) -> list[tuple[int, int]]:
    return [(ms * MS, 30) for ms in milliseconds]


def left_out(run: PlanRun, operator: str = "a") -> dict[str, int]:
    """Return the counters of an operator that are not zero."""
    return {why: n for why, n in run.query.counters.get(operator, {}).items() if n}


def test_rows_of_windows_that_began_before_the_query_are_missed(readings: ScriptedStream) -> None:
    rows = at(3, 12, 13, 21, 22, 23)
    readings.rows(*rows)
    run = run_plan(counting(), "a", [readings], earliest=False)
    readings.rows(*rows)
    assert run.rows() == []
    assert left_out(run) == {"missed": 6}


def test_a_row_that_is_late_and_of_a_window_before_the_start_is_missed(readings: ScriptedStream) -> None:
    readings.rows(*at(3, 12))
    run = run_plan(counting(), "a", [readings], earliest=False)
    readings.rows(*at(14, 25, 36, 4, 22, 37))
    assert run.rows() == [(1, 20_000, 30_000)]
    assert left_out(run) == {"missed": 2, "late": 1}  # 14 and 4 ms; 22 ms


def test_an_overlapping_window_that_began_before_the_query_is_not_answered(readings: ScriptedStream) -> None:
    readings.rows(*at(3, 12))
    run = run_plan(
        counting({"kind": "hopping", "size": "10ms", "hop": "5ms"}), "a", [readings], earliest=False
    )
    readings.rows(*at(13, 16, 17, 21, 33))
    # The row at 12 ms was not read: [10, 20) ms would be incomplete.
    assert run.rows() == [(3, 15_000, 25_000), (1, 20_000, 30_000)]
    assert left_out(run) == {"missed": 1}


def test_rows_of_windows_interrupted_by_a_pause_are_missed(readings: ScriptedStream) -> None:
    run = run_plan(counting(), "a", [readings])
    readings.rows(*at(1, 2, 11, 12, 13))
    run.engine.run()
    run.engine.pause("q")
    readings.rows(*at(14, 22))
    run.engine.run()
    run.engine.resume("q")
    readings.rows(*at(23, 31, 32, 41))
    assert run.rows() == [(2, 0, 10_000), (2, 30_000, 40_000)]
    assert left_out(run) == {"missed": 4, "skipped_windows": 1}  # 11, 12, 13 and 23 ms
    assert left_out(run, "in") == {"missed": 2}  # 14 and 22 ms arrived during the pause


def test_a_row_that_took_part_in_one_of_its_windows_is_not_missed(readings: ScriptedStream) -> None:
    window = {"kind": "hopping", "size": "10ms", "hop": "5ms"}
    run = run_plan(counting(window), "a", [readings])
    readings.rows(*at(1, 6, 11, 12))  # 1 and 6 ms were answered with [-5, 5) and [0, 10) ms
    run.engine.run()
    run.engine.pause("q")
    readings.rows(*at(13))
    run.engine.run()
    run.engine.resume("q")
    readings.rows(*at(14, 31))
    run.engine.run()
    assert left_out(run) == {"missed": 3, "skipped_windows": 2}  # 11, 12 and 14 ms


@pytest.mark.parametrize("op", ["except", "join"])
def test_both_inputs_are_counted(stream: MakeStream, op: str) -> None:
    sides = [stream(name, "ts timestamp, k int", event_time="ts") for name in "lr"]
    node: dict[str, Any] = {"op": op, "left": "l", "right": "r", "window": TUMBLING}
    if op == "join":
        node |= {"on": [["k", "k"]], "compute": {"k": "l.k"}}
    nodes = {**{name: {"op": "source", "stream": name} for name in "lr"}, "a": node}
    sides[0].rows((12 * MS, 1))
    run = run_plan(nodes, "a", sides, earliest=False)
    for side in sides:
        side.rows(*[(ms * MS, 1) for ms in (13, 25, 41, 26, 14)])
    run.engine.run()
    assert left_out(run) == {"missed": 4, "late": 2}  # 13 and 14 ms; 26 ms
    run.engine.pause("q")
    sides[1].rows((42 * MS, 1))
    run.engine.run()
    run.engine.resume("q")
    for side in sides:
        side.rows((52 * MS, 1), (61 * MS, 1))
    run.engine.run()
    assert left_out(run) == {"missed": 6, "late": 2, "skipped_windows": 1}  # 41 ms


@pytest.mark.parametrize("hop", ["10ms", "5ms"])
def test_the_order_of_inputs_does_not_matter(tmp_path: Path, hop: str) -> None:
    """Rows before the query show which windows are incomplete, whichever input is read first."""
    window = {"kind": "hopping", "size": "10ms", "hop": hop}
    node = {"op": "except", "left": "l", "right": "r", "window": window}
    nodes = {**{name: {"op": "source", "stream": name} for name in "lr"}, "a": node}
    counted = []
    for first in (0, 1):
        sides = [
            ScriptedStream(tmp_path / str(first), name, "ts timestamp, k int", ManualClock(), event_time="ts")
            for name in "lr"
        ]
        sides[0].rows((12 * MS, 1))
        run = run_plan(nodes, "a", sides, earliest=False)
        # With 22 ms on the left, windows up to [20, 30) ms are incomplete; the right alone cannot tell.
        sides[0].rows((22 * MS, 1))
        run.engine.pause("q")
        run.engine.resume("q")
        rows = [(ms * MS, 1) for ms in (13, 18, 25, 31, 41, 26, 14, 33, 50)]
        for side in (sides[first], sides[1 - first]):
            side.rows(*rows)
            run.engine.run()
        counted.append((run.answers(), left_out(run)))
        for side in sides:
            side.close()
    assert counted[0] == counted[1]
    assert counted[0][1]["missed"]
    assert counted[0][1]["late"]


def test_rows_between_windows_and_before_their_begin_are_outside(readings: ScriptedStream) -> None:
    window = {"kind": "hopping", "size": "2ms", "hop": "10ms", "begin": "1970-01-01T00:00:00.010Z"}
    run = run_plan(counting(window), "a", [readings])
    readings.rows(*at(1, 9, 10, 11, 12, 19, 21, 40))
    assert run.rows() == [(2, 10_000, 12_000), (1, 20_000, 22_000)]
    assert left_out(run) == {"outside": 4}


def test_counters_are_part_of_a_snapshot(readings: ScriptedStream) -> None:
    readings.rows(*at(12))
    first = run_plan(counting(), "a", [readings], earliest=False)
    readings.rows(*at(13, 25, 41, 26))
    first.engine.run()
    saved = first.engine.snapshot("q")
    again = run_plan(counting(), "a", [readings], earliest=False, saved=saved)
    readings.rows(*at(14))
    again.engine.run()
    assert left_out(again) == {"missed": 2, "late": 1}


@pytest.mark.parametrize(
    ("window", "missed"), [(TUMBLING, 3), ({"kind": "hopping", "size": "10ms", "hop": "5ms"}, 1)]
)
def test_rows_of_open_windows_are_counted_after_a_snapshot(
    readings: ScriptedStream, window: dict[str, Any], missed: int
) -> None:
    first = run_plan(counting(window), "a", [readings])
    readings.rows(*at(101, 102, 106))
    first.engine.run()
    saved = first.engine.snapshot("q")
    again = run_plan(counting(window), "a", [readings], saved=saved)
    again.engine.pause("q")
    readings.rows(*at(107))
    again.engine.run()
    again.engine.resume("q")
    readings.rows(*at(141))
    again.engine.run()
    assert left_out(again)["missed"] == missed  # hopping: 101 and 102 ms were answered with [95, 105) ms


@pytest.mark.parametrize("train", [1, 2, 4096])
@pytest.mark.parametrize("options", [RunOptions(), RunOptions(one_time=True)])
def test_rows_after_the_end_of_the_query_are_not_counted(
    readings: ScriptedStream, train: int, options: RunOptions
) -> None:
    window: dict[str, Any] = TUMBLING
    if not options.one_time:
        window = {**TUMBLING, "until": "1970-01-01T00:00:00.010Z"}
    readings.rows(*at(3, 8, 11, 4, 12, 5, 25))
    run = run_plan(counting(window), "a", [readings], train=train, options=options)
    assert run.rows() == [(2, 0, 10_000)]
    assert left_out(run) == {}


# A model of excluded rows, row by row


@dataclass(frozen=True)
class Windows:
    """Windows by time, in milliseconds."""

    size: int
    step: int
    begin: int | None

    def of(self, time: int) -> list[int]:
        """Return the numbers of the windows that a time is in."""
        origin = self.begin or 0
        last = (time - origin) // self.step
        found = [k for k in range(last - self.size // self.step - 1, last + 1) if self._has(k, time)]
        return [k for k in found if self.begin is None or k >= 0]

    def _has(self, window: int, time: int) -> bool:
        start = (self.begin or 0) + window * self.step
        return start <= time < start + self.size

    def start(self, window: int) -> int:
        return (self.begin or 0) + window * self.step

    def end(self, window: int) -> int:
        return self.start(window) + self.size

    def spec(self) -> dict[str, Any]:
        kind = "tumbling" if self.size == self.step else "hopping"
        spec: dict[str, Any] = {"kind": kind, "size": f"{self.size}ms"}
        if kind == "hopping":
            spec["hop"] = f"{self.step}ms"
        if self.begin is not None:
            spec["begin"] = self.begin * MS
        return spec


def modelled(
    windows: Windows, before: Sequence[int], behind: Sequence[int], lateness: int
) -> tuple[Counter[str], Counter[int]]:
    """Return how many rows after the start are excluded, by reason, and the rows of the other windows."""
    counted: Counter[str] = Counter()
    held: Counter[int] = Counter()
    watermark = max(before) - lateness if before else -(10**9)
    for time in behind:
        mine = windows.of(time)
        whole = [k for k in mine if not before or windows.start(k) > max(before)]
        open_ = [k for k in whole if windows.end(k) > watermark]
        if not mine:
            counted["outside"] += 1
        elif not whole:
            counted["missed"] += 1
        elif not open_:
            counted["late"] += 1
        held.update(open_)
        watermark = max(watermark, time - lateness)
    return counted, held


def random_rows(random: Random) -> Iterator[int]:
    time = random.choice((0, 57, 1000))
    for _ in range(random.choice((5, 30, 90))):
        time += random.choice((0, 1, 1, 2, 5, 17))
        yield time - random.choice((0, 0, 0, 1, 3, 9, 40))


@pytest.mark.parametrize("seed", range(40))
def test_every_row_takes_part_or_is_counted(tmp_path: Path, seed: int) -> None:
    random, clock = Random(seed), ManualClock()
    lateness = random.choice((0, 0, 4, 30))
    size = random.choice((1, 10, 20))
    step = random.choice((size, size, max(size // 2, 1), size + 3, 7))
    windows = Windows(size, step, random.choice((None, None, 0, 25)))
    rows = list(random_rows(random))
    cut = random.choice((0, 1, len(rows) // 2))
    wanted, held = modelled(windows, rows[:cut], rows[cut:], lateness)
    for number, (train, policy, options) in enumerate(WAYS):
        readings = ScriptedStream(
            tmp_path / str(number),
            "readings",
            "ts timestamp, temp int",
            clock,
            event_time="ts",
            lateness=lateness * MS,
        )
        readings.rows(*at(*rows[:cut]), frame=random.choice((1, 5, 100)))
        run = run_plan(
            counting(windows.spec()),
            "a",
            [readings],
            earliest=False,
            clock=clock,
            train=train,
            policy=policy,
            policy_options=options,
        )
        readings.rows(*at(*rows[cut:]), frame=random.choice((1, 5, 100)))
        readings.complete()
        answers = {windows_at: n for n, windows_at, _ in run.rows()}
        assert left_out(run) == dict(wanted), (train, policy)
        assert answers == {windows.start(k) * MS: n for k, n in held.items()}, (train, policy)
        if windows.size <= windows.step:
            assert sum(answers.values()) + wanted.total() == len(rows) - cut
        readings.close()


@pytest.mark.parametrize("seed", range(8))
def test_members_of_a_shared_pipeline_count_as_they_would_alone(tmp_path: Path, seed: int) -> None:
    counted = {}
    for sharing in (Sharing.OFF, Sharing.CLASS):
        random, clock = Random(seed), ManualClock()
        readings = ScriptedStream(
            tmp_path / sharing.value, "readings", "ts timestamp, temp int", clock, event_time="ts"
        )
        engine = Engine(clock, train=random.choice((1, 4096)), sharing=sharing)
        engine.attach("readings", readings.reader)
        window = random.choice((TUMBLING, {"kind": "hopping", "size": "20ms", "hop": "5ms"}))
        runs, time, shared = [], 0, 0
        for number in range(200):
            time += random.choice((0, 1, 4))
            readings.rows(*at(max(time - random.choice((0, 0, 0, 2, 30, 300)), 0)))
            if number % 23 == 5:
                runs.append(
                    run_plan(
                        counting(window), "a", [readings], engine=engine, earliest=False, id_=f"q{number}"
                    )
                )
            if random.random() < 0.3:
                clock.advance(nanoseconds=2_000_000_000)
                engine.run()
            if number % 71 == 70:
                engine.run()
                engine.snapshot(runs[0].query.id)  # it detaches, and attaches again
            if number == 150:
                engine.run()
                engine.pause(runs[1].query.id)
            if number == 160:
                engine.run()
                engine.resume(runs[1].query.id)
            shared += sum(bool(run.query.shared) for run in runs)
        engine.run()
        counted[sharing] = [(run.answers(), left_out(run), left_out(run, "in")) for run in runs]
        assert bool(shared) is (sharing is Sharing.CLASS)
        readings.close()
    assert any(of.get("missed") and of.get("late") for _, of, _ in counted[Sharing.OFF])
    assert counted[Sharing.CLASS] == counted[Sharing.OFF]
