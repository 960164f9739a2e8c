"""Screens: queries that would drop all new rows get no turn, and everything else is as if they had one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.conftest import MakeStream

from mavstream_protocol.scheduling import DEFAULT_SCHEDULER, Sharing
from mavstream_server.engine.engine import Engine
from mavstream_server.log import FrameKind, LogReader
from mavstream_server.scheduling.policy import SourceService
from mavstream_server.testing import ManualClock, PlanRun, ScriptedStream, run_plan

QUERIES = 12


@pytest.fixture
def readings(stream: MakeStream) -> ScriptedStream:
    return stream("readings", "x int, y float null, name string", event_time=None)


@pytest.fixture
def start(readings: ScriptedStream, clock: ManualClock) -> Callable[..., list[PlanRun]]:
    """Return a function that starts a query for each predicate, all of them at the first row."""

    def start_all(*predicates: str, **options: Any) -> list[PlanRun]:
        scheduler = {"policy": DEFAULT_SCHEDULER.policy, "options": DEFAULT_SCHEDULER.options}
        engine = Engine(clock, **{"sharing": Sharing.OFF, **scheduler, **options})
        engine.attach("readings", LogReader(readings.writer.path))
        return [_query(engine, readings, f"q{number}", where) for number, where in enumerate(predicates)]

    return start_all


def _query(engine: Engine, readings: ScriptedStream, id_: str, where: str, **above: Any) -> PlanRun:
    nodes: dict[str, Any] = {
        "in": {"op": "source", "stream": "readings"},
        "s": {"op": "select", "input": "in", "where": where},
        **above,
    }
    return run_plan(nodes, next(reversed(nodes)), [readings], engine=engine, id_=id_)


def _warm(readings: ScriptedStream, runs: list[PlanRun]) -> Engine:
    """Let all queries read a row that none of them passes, so that they are at the same place."""
    readings.rows((-1, 0.0, "none"))
    runs[0].engine.run()
    return runs[0].engine


def _positions(runs: list[PlanRun]) -> set[int]:
    return {source.cursor.position for run in runs for source in run.query.network.sources}


def test_queries_that_would_drop_all_new_rows_get_no_turn(
    readings: ScriptedStream, start: Callable[..., list[PlanRun]]
) -> None:
    runs = start(*(f"x > {number}" for number in range(QUERIES)))
    engine = _warm(readings, runs)
    slices, progress = engine.loop.slices, engine.loop.progress
    readings.rows((3, 1.0, "a"))
    engine.run()
    assert [len(run.answers()) for run in runs] == [1, 1, 1] + 9 * [0]
    assert engine.loop.slices - slices == 3
    assert engine.loop.progress - progress == QUERIES, "positions that streams must retain are reported by it"
    assert _positions(runs) == {2}
    assert {run.query.rows_in for run in runs} == {2}


@pytest.mark.parametrize(
    ("policy", "sources", "sharing"),
    [
        ("cqc", None, Sharing.OFF),
        ("rr", SourceService.BETWEEN_SLICES, Sharing.OFF),
        ("segment", None, Sharing.CLASS),
        ("deadline", None, Sharing.CLASS),
    ],
)
def test_answers_are_those_of_each_query_alone(
    readings: ScriptedStream,
    start: Callable[..., list[PlanRun]],
    policy: str,
    sources: SourceService | None,
    sharing: Sharing,
) -> None:
    predicates = [
        *(f"x > {number}" for number in range(4)),
        *(f"x = {number} AND y < 2" for number in range(4)),
        *(f"x BETWEEN {number} AND {number + 1}" for number in range(4)),
        *(f"name = '{name}' AND {number} <= x" for number, name in enumerate("abcd")),
        *(f"y > {number} AND x / y > 1" for number in range(4)),
        "x > 1 OR name = 'a'",
        "y IS NULL",
        "x > 100",
        "x > 100",
    ]
    rows = [
        (number % 6, None if number % 5 == 0 else number % 4 - 0.5, "abcdef"[number % 6])
        for number in range(60)
    ]
    expected = [run for where in predicates for run in start(where)]
    runs = start(*predicates, policy=policy, options={}, sources=sources, sharing=sharing)
    for at in range(len(rows)):
        readings.rows(*rows[at : at + 1 + at % 3])
        runs[0].engine.run()
    assert runs[0].engine.intake.passed > 0
    for where, run, alone in zip(predicates, runs, expected, strict=True):
        assert run.answers() == alone.rows(), where
        assert run.query.counters == alone.query.counters, where


def test_errors_are_counted_although_most_queries_pass_over_the_row(
    readings: ScriptedStream, start: Callable[..., list[PlanRun]]
) -> None:
    runs = start(*(f"y > {number} AND sqrt(x) > 1" for number in range(QUERIES)))
    engine = _warm(readings, runs)
    readings.rows((-4, 2.5, "a"))
    readings.rows((-4, None, "a"))
    engine.run()
    failed = [run.query.counters.get("s", {}).get("errors", 0) for run in runs]
    assert failed == [2, 2, 2] + 9 * [1], "a null comparison decides nothing, so the other side counts"


def test_windows_close_although_no_row_passes(stream: MakeStream, clock: ManualClock) -> None:
    timed = stream("timed", "ts timestamp, x int", event_time="ts")
    engine = Engine(clock, sharing=Sharing.OFF)
    engine.attach("timed", timed.reader)
    window = {
        "op": "aggregate",
        "input": "s",
        "by": [],
        "window": {"kind": "tumbling", "size": "1s"},
        "compute": {"n": "count(*)"},
    }
    runs = [
        run_plan(
            {
                "in": {"op": "source", "stream": "timed"},
                "s": {"op": "select", "input": "in", "where": f"x > {number}"},
                "w": window,
            },
            "w",
            [timed],
            engine=engine,
            id_=f"q{number}",
        )
        for number in range(QUERIES)
    ]
    timed.rows((0, 20))
    engine.run()
    timed.rows((1_500_000, 0))
    engine.run()
    counted = [[row[run.schema.names.index("n")] for row in run.answers()] for run in runs]
    assert counted == [[1]] * QUERIES


def test_a_stopped_stream_ends_the_queries(
    readings: ScriptedStream, start: Callable[..., list[PlanRun]]
) -> None:
    runs = start(*(f"x > {number}" for number in range(QUERIES)))
    engine = _warm(readings, runs)
    readings.rows((0, 0.0, "a"))
    readings.complete()
    engine.run()
    assert {run.query.state.value for run in runs} == {"finished"}


def test_marks_without_rows_are_passed_over(
    readings: ScriptedStream, start: Callable[..., list[PlanRun]], clock: ManualClock
) -> None:
    runs = start(*(f"x > {number}" for number in range(QUERIES)))
    engine = _warm(readings, runs)
    slices = engine.loop.slices
    clock.advance(seconds=0.001)
    readings.mark(FrameKind.CLOCK)
    engine.run()
    assert engine.loop.slices == slices
    assert {source.frontier.watermark for run in runs for source in run.query.network.sources} == {
        clock.now() // 1000
    }


def test_a_query_that_passed_over_rows_continues_from_a_snapshot(
    readings: ScriptedStream, start: Callable[..., list[PlanRun]]
) -> None:
    runs = start(*(f"x > {number}" for number in range(QUERIES)))
    engine = _warm(readings, runs)
    readings.rows((0, 0.0, "a"))
    engine.run()
    saved = engine.snapshot("q5")
    engine.stop("q5")
    readings.rows((7, 0.0, "b"))
    nodes = {
        "in": {"op": "source", "stream": "readings"},
        "s": {"op": "select", "input": "in", "where": "x > 5"},
    }
    again = run_plan(nodes, "s", [readings], engine=engine, id_="q5", saved=saved)
    assert again.rows() == [(7, 0.0, "b")]
    assert _positions([again]) == {3}


def test_the_selectivity_of_a_select_includes_rows_that_were_passed_over(
    readings: ScriptedStream, start: Callable[..., list[PlanRun]]
) -> None:
    runs = start(*(f"x = {number}" for number in range(QUERIES)))
    engine = _warm(readings, runs)
    for number in range(1200):
        readings.rows((number % QUERIES, 0.0, "a"))
        engine.run()
    found = [run.query.tasks["s"].statistics for run in runs]
    assert all(one.tuples >= 1000 for one in found)
    assert all(one.selectivity == pytest.approx(1 / QUERIES, rel=0.2) for one in found)


def test_a_large_batch_is_read_by_every_query(
    readings: ScriptedStream, start: Callable[..., list[PlanRun]]
) -> None:
    runs = start(*(f"x > {number + 1000}" for number in range(QUERIES)))
    engine = _warm(readings, runs)
    slices = engine.loop.slices
    readings.rows(*((number % 100, 0.0, "a") for number in range(1000)))
    engine.run()
    assert engine.loop.slices - slices >= QUERIES, "comparing many rows with all constants would take long"
    assert _positions(runs) == {1001}
