"""Sources rest while their rows cannot lead to an answer: at most 50 ms."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conftest import MakeStream

from mavstream_server.engine.engine import Engine
from mavstream_server.log.format.layout import FrameKind
from mavstream_server.scheduling.policy import LONGEST_WAIT, SourceService
from mavstream_server.testing import ManualClock, PlanRun, ScriptedStream, run_plan

TRAIN = 64
SECOND = 1_000_000
SERVICES = [SourceService.BETWEEN_SLICES, SourceService.PER_CLASS]
AGGREGATE = {
    "in": {"op": "source", "stream": "readings"},
    "warm": {"op": "select", "input": "in", "where": "x >= 0"},
    "count": {
        "op": "aggregate",
        "input": "warm",
        "window": {"kind": "tumbling", "size": "1s"},
        "compute": {"n": "count(*)"},
    },
}


def started(
    readings: ScriptedStream,
    clock: ManualClock,
    nodes: dict[str, Any] = AGGREGATE,
    root: str = "count",
    sources: SourceService = SourceService.PER_CLASS,
    patient: bool = True,
) -> PlanRun:
    """Start a query on readings that has seen a row, so that it knows which windows are open."""
    engine = Engine(clock, train=TRAIN, sources=sources, patient=patient)
    engine.attach(readings.name, readings.reader)
    run = run_plan(nodes, root, [readings], engine=engine, earliest=True)
    readings.rows((0, 0))
    engine.run()
    return run


@pytest.fixture
def readings(stream: MakeStream) -> ScriptedStream:
    return stream("readings", "ts timestamp, x int", event_time="ts")


def unread(run: PlanRun) -> int:
    return sum(task.work.waiting_rows for task in run.query.sources.values())


@pytest.mark.parametrize("sources", SERVICES)
def test_rows_of_an_open_window_stay_in_the_log_until_it_closes(
    readings: ScriptedStream, clock: ManualClock, sources: SourceService
) -> None:
    run = started(readings, clock, sources=sources)
    for number in range(1, 10):
        readings.rows((number * 1000, number))
        run.engine.run()
        assert unread(run) == number
    readings.rows((SECOND, 0))
    run.engine.run()
    assert [row[0] for row in run.answers()] == [10]
    assert unread(run) == 0


@pytest.mark.parametrize("sources", SERVICES)
def test_a_mark_that_closes_a_window_ends_the_rest(
    readings: ScriptedStream, clock: ManualClock, sources: SourceService
) -> None:
    run = started(readings, clock, sources=sources)
    readings.rows((1000, 1))
    run.engine.run()
    readings.mark(FrameKind.WATERMARK, watermark=SECOND)
    run.engine.run()
    assert [row[0] for row in run.answers()] == [2]


@pytest.mark.parametrize("sources", SERVICES)
def test_a_full_train_is_read_at_once(
    readings: ScriptedStream, clock: ManualClock, sources: SourceService
) -> None:
    run = started(readings, clock, sources=sources)
    readings.rows(*((number, number) for number in range(TRAIN - 1)))
    run.engine.run()
    assert unread(run) == TRAIN - 1
    readings.rows((TRAIN, 0))
    run.engine.run()
    assert unread(run) == 0


@pytest.mark.parametrize("sources", SERVICES)
def test_a_rest_ends_after_fifty_milliseconds(
    readings: ScriptedStream, clock: ManualClock, sources: SourceService
) -> None:
    run = started(readings, clock, sources=sources)
    assert run.engine.due is None
    readings.rows((1000, 1))
    run.engine.run()
    due = run.engine.due
    assert due == clock.now() + LONGEST_WAIT
    clock.advance(nanoseconds=LONGEST_WAIT - 1)
    run.engine.run()
    assert unread(run) == 1
    clock.advance(nanoseconds=1)
    run.engine.run()
    assert unread(run) == 0
    assert run.engine.due is None


@pytest.mark.parametrize("sources", SERVICES)
def test_an_engine_that_is_not_patient_reads_when_it_has_nothing_else_to_do(
    readings: ScriptedStream, clock: ManualClock, sources: SourceService
) -> None:
    run = started(readings, clock, sources=sources, patient=False)
    readings.rows((1000, 1))
    run.engine.run()
    assert unread(run) == 0


def test_windows_above_windows_close_in_time(readings: ScriptedStream, clock: ManualClock) -> None:
    nodes = {
        **AGGREGATE,
        "outer": {
            "op": "aggregate",
            "input": "count",
            "window": {"kind": "tumbling", "size": "1500ms"},
            "compute": {"n": "sum(n)"},
        },
    }
    run = started(readings, clock, nodes, "outer")
    readings.rows((SECOND, 1))
    run.engine.run()
    readings.rows((SECOND + SECOND // 2, 2))
    run.engine.run()
    assert [row[0] for row in run.answers()] == [1], (
        "the outer window closes before the inner one that is open"
    )


@pytest.mark.parametrize(
    ("nodes", "root"),
    [
        ({k: v for k, v in AGGREGATE.items() if k != "count"}, "warm"),
        (
            {
                **AGGREGATE,
                "count": {**AGGREGATE["count"], "window": {"kind": "tumbling", "size": 100}},
            },
            "count",
        ),
        (
            {
                **AGGREGATE,
                "other": {"op": "project", "input": "count", "compute": {"n": "n"}},
                "same": {"op": "project", "input": "count", "compute": {"n": "n + 1"}},
                "both": {"op": "union", "inputs": ["other", "same"]},
            },
            "both",
        ),
    ],
    ids=["select", "row window", "branches"],
)
def test_sources_do_not_rest_where_rows_or_other_inputs_may_lead_to_answers(
    readings: ScriptedStream, clock: ManualClock, nodes: dict[str, Any], root: str
) -> None:
    run = started(readings, clock, nodes, root)
    readings.rows((1000, 1))
    run.engine.run()
    assert unread(run) == 0


def test_rows_that_rested_do_not_count_as_having_waited_for_a_turn(
    readings: ScriptedStream, clock: ManualClock
) -> None:
    run = started(readings, clock)
    readings.rows((1000, 1))
    run.engine.run()
    clock.advance(nanoseconds=20_000_000)
    readings.rows((SECOND, 2))
    run.engine.intake.look(clock.now())
    (task,) = run.query.sources.values()
    assert task.oldest == clock.now()
