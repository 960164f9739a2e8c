"""One-time queries end with the first window that closes after their start, even with an empty answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.conftest import MakeStream

from mavstream_server.engine.states import QueryState
from mavstream_server.log.format.layout import FrameKind
from mavstream_server.planning.run_options import RunOptions
from mavstream_server.testing import ManualClock, PlanRun, ScriptedStream, run_plan

MS = 1000
TUMBLING = {"kind": "tumbling", "size": "10ms"}
ONE_TIME = RunOptions(one_time=True)


def counting(window: dict[str, Any] = TUMBLING, where: str = "temp > 20") -> dict[str, Any]:
    """A plan that counts the rows of windows that pass a filter."""
    return {
        "in": {"op": "source", "stream": "readings"},
        "hot": {"op": "select", "input": "in", "where": where},
        "a": {"op": "aggregate", "input": "hot", "window": window, "compute": {"n": "count(*)"}},
    }


def pairing(node: dict[str, Any]) -> dict[str, Any]:
    """A plan with a windowed operator `a` over the streams `l` and `r`."""
    return {
        "l": {"op": "source", "stream": "l"},
        "r": {"op": "source", "stream": "r"},
        "a": {"left": "l", "right": "r", "window": TUMBLING, **node},
    }


@pytest.fixture
def readings(stream: MakeStream) -> ScriptedStream:
    return stream("readings", "ts timestamp, temp int", event_time="ts")


@pytest.fixture
def sides(stream: MakeStream) -> list[ScriptedStream]:
    return [stream(name, "ts timestamp, k int", event_time="ts") for name in "lr"]


def at(temp: int, *milliseconds: int) -> list[tuple[int, int]]:
    return [(ms * MS, temp) for ms in milliseconds]


def ended(run: PlanRun) -> list[tuple[Any, ...]]:
    """Run a query that must end by itself; return its answers."""
    rows = run.rows()
    assert run.query.state is QueryState.FINISHED
    return rows


@pytest.mark.parametrize("train", [1, 2, 3, 4096])
@pytest.mark.parametrize("tuples", [1, 4096])
def test_an_empty_first_window_ends_the_query(readings: ScriptedStream, train: int, tuples: int) -> None:
    readings.rows(*at(10, 1, 2), *at(30, 13, 14), *at(10, 24), *at(30, 35))
    run = run_plan(
        counting(), "a", [readings], options=ONE_TIME, train=train, policy_options={"tuples": tuples}
    )
    assert ended(run) == []


def test_the_first_window_is_answered_when_it_has_rows(readings: ScriptedStream) -> None:
    readings.rows(*at(30, 1), *at(10, 2), *at(30, 13, 24))
    assert ended(run_plan(counting(), "a", [readings], options=ONE_TIME)) == [(1, 0, 10_000)]


def test_a_one_time_query_runs_until_the_first_window_closes(readings: ScriptedStream) -> None:
    readings.rows(*at(10, 1, 2, 9))
    run = run_plan(counting(), "a", [readings], options=ONE_TIME)
    assert run.rows() == []
    assert run.query.state is QueryState.RUNNING
    readings.rows(*at(10, 10))
    assert ended(run) == []


def test_after_older_rows_the_first_complete_window_counts(readings: ScriptedStream) -> None:
    readings.rows(*at(30, 3, 12))
    run = run_plan(counting(), "a", [readings], earliest=False, options=ONE_TIME)
    readings.rows(*at(30, 13, 14), *at(10, 21), *at(30, 33))
    assert ended(run) == []  # [20, 30) ms is the first that began after the start


def test_a_window_that_began_before_the_start_counts_if_it_is_partial(readings: ScriptedStream) -> None:
    readings.rows(*at(30, 3, 12))
    window = {**TUMBLING, "partial": True}
    run = run_plan(counting(window), "a", [readings], earliest=False, options=ONE_TIME)
    readings.rows(*at(30, 13, 14), *at(30, 21, 33))
    assert ended(run) == [(2, 10_000, 20_000)]


@pytest.mark.parametrize("train", [1, 4096])
def test_rows_out_of_order_decide_which_window_is_first(stream: MakeStream, train: int) -> None:
    readings = stream("readings", "ts timestamp, temp int", event_time="ts", lateness=5 * MS)
    readings.rows(*at(30, 100), *at(10, 94), *at(30, 101, 120, 140))
    run = run_plan(counting(), "a", [readings], options=ONE_TIME, train=train)
    assert ended(run) == []  # [90, 100) ms has a row of the stream, and none that passes


@pytest.mark.parametrize("train", [1, 4096])
def test_overlapping_windows_close_one_after_the_other(readings: ScriptedStream, train: int) -> None:
    window = {"kind": "hopping", "size": "10ms", "hop": "5ms"}
    readings.rows(*at(10, 21), *at(30, 26, 27), *at(30, 40))
    run = run_plan(counting(window), "a", [readings], options=ONE_TIME, train=train)
    assert ended(run) == []  # [15, 25) ms
    other = run_plan(counting(window, "temp >= 10"), "a", [readings], options=ONE_TIME, train=train)
    assert ended(other) == [(1, 15_000, 25_000)]


def test_windows_begin_no_earlier_than_begin(readings: ScriptedStream) -> None:
    window = {**TUMBLING, "begin": "1970-01-01T00:00:00.020Z"}
    readings.rows(*at(30, 1, 12, 35, 41))
    assert ended(run_plan(counting(window), "a", [readings], options=ONE_TIME)) == []


def test_a_begin_long_ago_does_not_end_the_query_at_once(readings: ScriptedStream) -> None:
    window = {**TUMBLING, "begin": "1970-01-01T00:00:00.000Z"}
    readings.rows(*at(30, 85, 86, 99))
    run = run_plan(counting(window), "a", [readings], options=ONE_TIME)
    assert ended(run) == [(2, 80_000, 90_000)]


def test_until_ends_the_first_window(readings: ScriptedStream) -> None:
    window = {**TUMBLING, "until": "1970-01-01T00:00:00.005Z"}
    readings.rows(*at(10, 1), *at(30, 6, 7))
    assert ended(run_plan(counting(window), "a", [readings], options=ONE_TIME)) == []


@pytest.mark.parametrize("train", [1, 3, 4096])
def test_windows_by_rows_close_when_they_are_full(readings: ScriptedStream, train: int) -> None:
    readings.rows(*at(10, 1), *at(30, 2, 3), *at(10, 4), *at(30, 5, 6, 7))
    window = {"kind": "tumbling", "size": 2}
    run = run_plan(counting(window), "a", [readings], options=ONE_TIME, train=train)
    assert ended(run) == [(2, 0, 2)]


@pytest.mark.parametrize("train", [1, 4096])
def test_an_except_ends_with_an_empty_difference(sides: list[ScriptedStream], train: int) -> None:
    for side in sides:
        side.rows((1 * MS, 1), (12 * MS, 1))
    sides[0].rows((13 * MS, 7), (31 * MS, 1))
    sides[1].rows((31 * MS, 1))
    run = run_plan(pairing({"op": "except"}), "a", sides, options=ONE_TIME, train=train)
    assert ended(run) == []


def test_an_except_without_left_rows_is_answered_too(sides: list[ScriptedStream]) -> None:
    sides[1].rows((1 * MS, 1), (12 * MS, 1), (31 * MS, 1))
    sides[0].rows((13 * MS, 7), (31 * MS, 1))
    assert ended(run_plan(pairing({"op": "except"}), "a", sides, options=ONE_TIME)) == []


@pytest.mark.parametrize("train", [1, 4096])
def test_a_window_join_ends_without_pairs(sides: list[ScriptedStream], train: int) -> None:
    sides[0].rows((1 * MS, 1), (12 * MS, 2), (31 * MS, 1))
    sides[1].rows((2 * MS, 5), (13 * MS, 2), (31 * MS, 1))
    join = {"op": "join", "on": [["k", "k"]], "compute": {"k": "l.k"}}
    assert ended(run_plan(pairing(join), "a", sides, options=ONE_TIME, train=train)) == []


def test_a_join_by_rows_ends_when_both_sides_are_full(sides: list[ScriptedStream]) -> None:
    join = {"op": "join", "on": [["k", "k"]], "compute": {"k": "l.k"}}
    nodes = pairing({**join, "window": {"kind": "tumbling", "size": 2}})
    run = run_plan(nodes, "a", sides, options=ONE_TIME)
    sides[0].rows((1 * MS, 1), (2 * MS, 2), (3 * MS, 3), (4 * MS, 4))
    sides[1].rows((1 * MS, 8), (2 * MS, 9), (3 * MS, 3), (4 * MS, 4))
    assert ended(run) == []


def test_nested_windows_begin_with_the_first_possible_answer(readings: ScriptedStream) -> None:
    nodes = counting()
    above = {"kind": "tumbling", "size": "20ms"}
    nodes["b"] = {"op": "aggregate", "input": "a", "window": above, "compute": {"m": "sum(n)"}}
    readings.rows(*at(10, 41, 52), *at(30, 63, 84, 105))
    assert ended(run_plan(nodes, "b", [readings], options=ONE_TIME)) == []  # [40, 60) ms


def test_time_alone_closes_the_first_window(stream: MakeStream, clock: ManualClock) -> None:
    silent = stream("readings", "ts timestamp, temp int")
    run = run_plan(counting(), "a", [silent], clock=clock, options=ONE_TIME)
    silent.mark(FrameKind.CLOCK)
    run.engine.run()
    assert run.query.state is QueryState.RUNNING
    clock.advance(seconds=1)
    silent.mark(FrameKind.CLOCK)
    assert ended(run) == []


@pytest.mark.parametrize("train", [1, 4096])
def test_idle_windows_that_closed_before_the_start_do_not_count(
    stream: MakeStream, clock: ManualClock, train: int
) -> None:
    silent = stream("readings", "ts timestamp, temp int")
    silent.rows((0, 30))
    for _ in range(5):
        clock.advance(seconds=1)
        silent.mark(FrameKind.CLOCK)
    now = clock.now() // 1000
    options = RunOptions(one_time=True, since=now)
    run = run_plan(
        counting({"kind": "tumbling", "size": "1s"}),
        "a",
        [silent],
        clock=clock,
        options=options,
        positions={"readings": 1},
        train=train,
    )
    run.engine.run()
    assert run.query.state is QueryState.RUNNING
    silent.rows((0, 30), (0, 30))
    clock.advance(seconds=2)
    silent.mark(FrameKind.CLOCK)
    start = now // 1_000_000 * 1_000_000
    assert ended(run) == [(2, start, start + 1_000_000)]


def test_the_first_window_survives_a_snapshot(readings: ScriptedStream) -> None:
    readings.rows(*at(10, 1, 2))
    first = run_plan(counting(), "a", [readings], options=ONE_TIME)
    first.engine.run()
    saved = first.engine.snapshot("q")
    readings.rows(*at(30, 13, 24))
    assert ended(run_plan(counting(), "a", [readings], options=ONE_TIME, saved=saved)) == []


def expected(rows: Sequence[tuple[int, int]], lateness: int, size: int) -> list[tuple[int, int, int]] | None:
    """Return the answer of a one-time count over tumbling windows; None if its window stays open."""
    watermark, first = -1 << 62, 1 << 62
    counted: dict[int, int] = {}
    for time, temp in rows:
        in_time = max(time, watermark)
        first = min(first, in_time // size)
        if (time // size + 1) * size > watermark and temp > 20:
            counted[time // size] = counted.get(time // size, 0) + 1
        watermark = max(watermark, time - lateness)
        if watermark >= (first + 1) * size:
            n = counted.get(first, 0)
            return [(n, first * size, (first + 1) * size)] if n else []
    return None


@pytest.mark.parametrize("seed", range(25))
def test_the_answer_depends_on_the_stream_alone(tmp_path: Path, seed: int) -> None:
    random, clock = Random(seed), ManualClock()
    lateness = random.choice((0, 3 * MS, 20 * MS))
    readings = ScriptedStream(
        tmp_path, "readings", "ts timestamp, temp int", clock, event_time="ts", lateness=lateness
    )
    time, rows = 50 * MS, []
    for _ in range(random.choice((3, 8, 40))):
        time += random.choice((0, 1, 2, 7, 25)) * MS
        rows.append((time - random.choice((0, 0, 1, 4, 15)) * MS, random.choice((10, 10, 30))))
    readings.rows(*rows, frame=random.choice((1, 2, 7, 100)))
    wanted = expected(rows, lateness, 10 * MS)
    for train, policy, options in (
        (1, "rr", {}),
        (3, "rr", {"tuples": 1}),
        (4096, "rr", {}),
        (2, "fifo", {}),
    ):
        run = run_plan(
            counting(), "a", [readings], options=ONE_TIME, train=train, policy=policy, policy_options=options
        )
        rows_out = run.rows()
        assert (run.query.state is QueryState.FINISHED) is (wanted is not None), (train, policy)
        assert rows_out == (wanted or []), (train, policy)
    readings.close()
