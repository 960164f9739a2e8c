"""Quiescent points: queries drain on demand, and continue from there."""

from __future__ import annotations

import pytest
from tests.conftest import MakeStream

from mavstream_protocol.scheduling import Sharing
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.migration.quiescence import is_quiescent
from mavstream_server.scheduling.policy import SourceService
from mavstream_server.testing import ManualClock, PlanRun, ScriptedStream, run_plan

NODES = {
    "in": {"op": "source", "stream": "readings"},
    "s": {"op": "select", "input": "in", "where": "x >= 0"},
    "t": {"op": "select", "input": "s", "where": "x < 1000000"},
}


def engine_on(readings: ScriptedStream, clock: ManualClock, service: SourceService) -> Engine:
    engine = Engine(clock, sources=service, train=8, sharing=Sharing.OFF)
    engine.attach(readings.name, readings.reader)
    return engine


def fed(readings: ScriptedStream, run: PlanRun, rows: int, steps: int) -> None:
    """Write rows and leave most of them unread or in queues."""
    readings.rows(*[(number,) for number in range(rows)], frame=5)
    for _ in range(steps):
        run.engine.step()


@pytest.mark.parametrize("service", [SourceService.BETWEEN_SLICES, SourceService.PER_CLASS])
def test_a_query_that_is_fed_all_the_time_reaches_a_quiescent_point(
    service: SourceService, stream: MakeStream, clock: ManualClock
) -> None:
    readings = stream("readings", "x int")
    engine = engine_on(readings, clock, service)
    run = run_plan(NODES, "t", [readings], engine=engine)
    fed(readings, run, 200, 5)
    seen: list[tuple[int, int]] = []

    def note() -> None:
        assert is_quiescent(run.query)
        seen.append((run.query.rows_in, run.sink.offset))

    engine.plan_changes.quiescent_points.ask([run.query], note)
    answers = run.rows()
    ((read, answered),) = seen
    assert read == answered < 200
    assert [x for (x,) in answers] == list(range(200))
    assert not engine.plan_changes.quiescent_points.wanted


def test_other_queries_continue_meanwhile_and_several_can_be_quiescent_together(
    stream: MakeStream, clock: ManualClock
) -> None:
    readings = stream("readings", "x int")
    engine = engine_on(readings, clock, SourceService.BETWEEN_SLICES)
    runs = [run_plan(NODES, "t", [readings], engine=engine, id_=f"q{number}") for number in range(3)]
    fed(readings, runs[0], 100, 7)
    seen: list[list[int]] = []
    engine.plan_changes.quiescent_points.ask(
        [run.query for run in runs[:2]], lambda: seen.append([run.query.rows_in for run in runs])
    )
    for room in (task.room for run in runs[:2] for task in run.query.sources.values()):
        assert room == 0
    for run in runs:
        assert len(run.rows()) == 100
    assert len(seen) == 1
    assert all(task.room > 0 for run in runs for task in run.query.sources.values())


@pytest.mark.parametrize("ending", ["pause", "stop"])
def test_the_action_is_dropped_for_a_query_that_pauses_or_ends(
    ending: str, stream: MakeStream, clock: ManualClock
) -> None:
    readings = stream("readings", "x int")
    engine = engine_on(readings, clock, SourceService.BETWEEN_SLICES)
    run, other = (run_plan(NODES, "t", [readings], engine=engine, id_=id_) for id_ in ("q", "other"))
    fed(readings, run, 100, 5)
    done: list[str] = []
    engine.plan_changes.quiescent_points.ask([run.query, other.query], lambda: done.append("both"))
    getattr(engine, ending)("q")
    assert len(other.rows()) == 100
    assert done == []
    if ending == "pause":
        engine.resume("q")
        readings.rows((7,))
        assert run.rows()[-1] == (7,)
