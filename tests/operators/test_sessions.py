"""Session windows: which rows they have, what is left out, and what operators above are told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.conftest import MakeStream
from tests.support.scale import scaled

from mavstream_server.engine.states import QueryState
from mavstream_server.planning.run_options import RunOptions
from mavstream_server.testing import ManualClock, PlanRun, ScriptedStream, run_plan

MS = 1000
SESSION = {"kind": "session", "gap": "10ms"}
FIELDS = "ts timestamp, room string, x float"
WAYS = ((1, "rr", {}), (3, "rr", {"tuples": 1}), (7, "fifo", {}), (4096, "rr", {}))
"""Trains, policies and their options."""
Case = tuple[int, str, float]


def sessions(window: dict[str, Any] = SESSION, by: Sequence[str] = ("room",)) -> dict[str, Any]:
    compute = {"n": "count(*)", "total": "sum(x)"}
    return {
        "in": {"op": "source", "stream": "readings"},
        "s": {"op": "aggregate", "input": "in", "by": list(by), "window": window, "compute": compute},
    }


@pytest.fixture
def readings(stream: MakeStream) -> ScriptedStream:
    return stream("readings", FIELDS, event_time="ts", lateness=30 * MS)


def at(*milliseconds: int, room: str = "a") -> list[Case]:
    return [(ms * MS, room, 1.0) for ms in milliseconds]


def spans(run: PlanRun) -> list[tuple[Any, ...]]:
    """Run a query; returns key, count, first time and end of each session, in ms."""
    return [(*row[:-3], row[-2] / MS, row[-1] / MS) for row in run.rows()]


def left_out(run: PlanRun, operator: str = "s") -> dict[str, int]:
    return {why: n for why, n in run.query.counters.get(operator, {}).items() if n}


def test_rows_that_are_less_than_the_gap_apart_are_one_session(readings: ScriptedStream) -> None:
    readings.rows(*at(0, 9, 19, 28))
    readings.complete()
    assert spans(run_plan(sessions(), "s", [readings])) == [("a", 2, 0, 19), ("a", 2, 19, 38)]


def test_a_row_can_bridge_two_sessions(readings: ScriptedStream) -> None:
    readings.rows(*at(0, 15), *at(15, room="b"), *at(8))
    readings.complete()
    assert spans(run_plan(sessions(), "s", [readings])) == [("a", 3, 0, 25), ("b", 1, 15, 25)]


def test_a_session_is_answered_when_the_watermark_passes_its_end(readings: ScriptedStream) -> None:
    run = run_plan(sessions(), "s", [readings])
    readings.rows(*at(0, 5), *at(44, room="b"))
    assert spans(run) == []
    readings.rows(*at(45, room="b"))
    assert spans(run) == [("a", 2, 0, 15)]


def test_a_row_before_the_watermark_is_late_even_if_its_session_is_open(readings: ScriptedStream) -> None:
    readings.rows(*at(0, 9, 40, 5, 10, 50, 19))
    readings.complete()
    run = run_plan(sessions(), "s", [readings])
    assert spans(run) == [("a", 3, 0, 20), ("a", 1, 40, 50), ("a", 1, 50, 60)]
    assert left_out(run) == {"late": 2}  # 5 and 19 ms, behind 40 and 50 ms with 30 ms of lateness


def test_begin_and_until_bound_sessions(readings: ScriptedStream) -> None:
    window = {**SESSION, "begin": "1970-01-01T00:00:00.005Z", "until": "1970-01-01T00:00:00.045Z"}
    readings.rows(*at(0, 4, 6, 14, 38, 44, 45, 90))
    run = run_plan(sessions(window), "s", [readings])
    assert spans(run) == [("a", 2, 6, 24), ("a", 2, 38, 45)]
    assert run.query.state is QueryState.FINISHED
    assert left_out(run) == {"outside": 2}


@pytest.mark.parametrize("partial", [False, True])
def test_sessions_that_may_have_begun_before_the_query_are_not_answered(
    readings: ScriptedStream, partial: bool
) -> None:
    readings.rows(*at(0, 20), *at(0, room="b"))
    run = run_plan(sessions({**SESSION, "partial": partial}), "s", [readings], earliest=False)
    readings.rows(*at(25, 33), *at(30, room="b"), *at(50))
    readings.complete()
    torn: list[tuple[Any, ...]] = [("a", 2, 25, 43)] if partial else []
    assert spans(run) == [("b", 1, 30, 40), *torn, ("a", 1, 50, 60)]
    assert left_out(run) == ({} if partial else {"missed": 2})


def test_sessions_that_a_pause_interrupts_are_not_answered(readings: ScriptedStream) -> None:
    run = run_plan(sessions(), "s", [readings])
    readings.rows(*at(0, 5, 20), *at(35, room="b"))
    run.engine.run()
    run.engine.pause("q")
    readings.rows(*at(28, 36))
    run.engine.run()
    run.engine.resume("q")
    readings.rows(*at(45), *at(46, room="b"), *at(60, 100))
    readings.complete()
    assert spans(run) == [("b", 1, 46, 56), ("a", 1, 60, 70), ("a", 1, 100, 110)]
    assert left_out(run) == {"missed": 5, "skipped_windows": 4}


def test_a_one_time_query_ends_with_the_first_session(readings: ScriptedStream) -> None:
    readings.rows(*at(3))
    run = run_plan(sessions(), "s", [readings], earliest=False, options=RunOptions(one_time=True))
    readings.rows(*at(5, 20, 28), *at(30, room="b"), *at(28, room="c"), *at(1, 90, 200, 2))
    assert spans(run) == [("a", 2, 20, 38), ("c", 1, 28, 38)]
    assert run.query.state is QueryState.FINISHED
    assert left_out(run) == {"missed": 2}  # 1 and 5 ms


def test_an_open_session_takes_no_more_memory_than_its_groups(readings: ScriptedStream) -> None:
    run = run_plan(sessions({**SESSION, "gap": "11ms"}), "s", [readings])
    sizes = []
    for number in range(60):
        readings.rows(*[(number * 100 * MS + step * 5 * MS, f"{step % 2}", 1.0) for step in range(20)])
        run.engine.run()
        sizes.append(run.query.memory.state)
    assert run.answers() == []
    assert max(sizes[30:]) <= max(sizes[:30])


def random_rows(random: Random, count: int) -> list[Case]:
    now, rows = 0, []
    for _ in range(count):
        now += random.choice((0, 1, 2, 4, 12, 25))
        time = (now - random.choice((0, 0, 0, 3, 9, 20, 45))) * MS
        rows.append((time, random.choice("aab"), random.choice((0.1, 0.7, 1e16, -1e16, 3.0))))
    return rows


def expected(rows: Sequence[Case], start: int) -> tuple[list[tuple[Any, ...]], dict[str, int]]:
    """Return the sessions of a query that starts behind the first rows, and what it leaves out."""
    watermark, unseen = -(1 << 62), -(1 << 62)
    kept: dict[str, list[int]] = {}
    counts = {"late": 0, "missed": 0}
    for number, (time, room, _) in enumerate(rows):
        if number < start:
            unseen = max(unseen, time)
        elif time < watermark:
            counts["late"] += 1
        else:
            kept.setdefault(room, []).append(time)
        watermark = max(watermark, time - 30 * MS)
    found = []
    for room, times in kept.items():
        for session in _islands(sorted(times)):
            if session[0] < unseen + 10 * MS:
                counts["missed"] += len(session)
            else:
                found.append((room, len(session), session[0], session[-1] + 10 * MS))
    return sorted(found), {why: n for why, n in counts.items() if n}


def _islands(times: Sequence[int]) -> Iterator[list[int]]:
    island: list[int] = []
    for time in times:
        if island and time - island[-1] >= 10 * MS:
            yield island
            island = []
        island.append(time)
    yield island


@pytest.mark.parametrize("seed", range(scaled(6, 200)))
def test_sessions_do_not_depend_on_batches_or_policies(tmp_path: Path, seed: int) -> None:
    """Windows above see the same sessions and gaps, and sums of floats are the same to the last bit."""
    random = Random(seed)
    rows = random_rows(random, 60)
    start, frame = random.choice((0, 0, 5, 20)), random.choice((1, 4, 60))
    above = {"op": "aggregate", "input": "s", "window": {"kind": "hopping", "size": "60ms", "hop": "30ms"},
             "compute": {"n": "sum(n)", "total": "sum(total)"}}  # fmt: skip
    nodes = {**sessions(), "w": above}
    answers = []
    for number, (train, policy, options) in enumerate(WAYS):
        readings = ScriptedStream(
            tmp_path / str(number), "readings", FIELDS, ManualClock(), event_time="ts", lateness=30 * MS
        )
        if start:
            readings.rows(*rows[:start])
        ways: dict[str, Any] = {"train": train, "policy": policy, "policy_options": options}
        run = run_plan(nodes, "w", [readings], earliest=False, **ways)
        plain = run_plan(sessions(), "s", [readings], earliest=False, **ways)
        readings.rows(*rows[start:], frame=frame)
        readings.complete()
        answers.append((plain.rows(), left_out(plain), run.rows(), run.query.counters))
        readings.close()
    assert all(answer == answers[0] for answer in answers)
    found = sorted((room, n, since, end) for room, n, _, since, end in answers[0][0])
    counted = {why: n for why, n in answers[0][1].items() if why != "skipped_windows"}
    assert (found, counted) == expected(rows, start)
