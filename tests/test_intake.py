"""When sources hand on rows: at once while idle, as fuller trains under load."""

from __future__ import annotations

from tests.conftest import MakeStream

from mavstream_server.engine.source_task import SourceTask
from mavstream_server.testing import ManualClock, run_plan

NODES = {
    "in": {"op": "source", "stream": "readings"},
    "s": {"op": "select", "input": "in", "where": "x >= 0"},
}


def task_of(stream: MakeStream, clock: ManualClock, **request: int) -> SourceTask:
    run = run_plan(NODES, "s", [stream("readings", "x int")], clock=clock, **request)
    return run.query.sources["in"]


def test_an_idle_engine_never_waits_for_more_rows(stream: MakeStream, clock: ManualClock) -> None:
    readings = stream("readings", "x int")
    run = run_plan(NODES, "s", [readings], clock=clock)
    for number in range(5):
        readings.rows((number,))
        assert len(run.rows()) == number + 1


def test_small_trains_under_load_make_a_source_wait_longer_up_to_its_cap(
    stream: MakeStream, clock: ManualClock
) -> None:
    task = task_of(stream, clock, latency_target=8_000)
    waits = []
    for _ in range(12):
        task.adapt(rows=10, idle=False)
        waits.append(task.linger)
    assert waits[:3] == [50_000, 100_000, 200_000]
    assert waits[-1] == 2_000_000  # a quarter of the target of 8 ms
    assert not task.due(clock.now(), idle=False) or task.waiting_since == 0
    assert task.due(clock.now(), idle=True)


def test_full_trains_or_idleness_make_it_wait_less(stream: MakeStream, clock: ManualClock) -> None:
    task = task_of(stream, clock)
    for _ in range(6):
        task.adapt(rows=10, idle=False)
    high = task.linger
    task.adapt(rows=4096, idle=False)
    assert task.linger == high // 2
    for _ in range(10):
        task.adapt(rows=10, idle=True)
    assert task.linger == 0


def test_a_source_that_waits_hands_on_when_its_time_is_up(stream: MakeStream, clock: ManualClock) -> None:
    task = task_of(stream, clock)
    for _ in range(6):
        task.adapt(rows=10, idle=False)
    task.waiting_since = clock.now()
    assert not task.due(clock.now(), idle=False)
    clock.advance(nanoseconds=task.linger)
    assert task.due(clock.now(), idle=False)
