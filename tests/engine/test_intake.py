"""When sources emit rows: at once while idle, as fuller trains under load."""

from __future__ import annotations

import pytest
from tests.conftest import MakeStream

from mavstream_server.engine.engine import Engine
from mavstream_server.engine.source_task import SourceTask
from mavstream_server.planning.instantiator import RunOptions
from mavstream_server.scheduling.policy import SourceService
from mavstream_server.testing import ManualClock, run_plan

NODES = {
    "in": {"op": "source", "stream": "readings"},
    "s": {"op": "select", "input": "in", "where": "x >= 0"},
}


def task_of(stream: MakeStream, clock: ManualClock, **request: int) -> SourceTask:
    run = run_plan(NODES, "s", [stream("readings", "x int")], clock=clock, **request)
    return run.query.sources["in"]


def grown(task: SourceTask, times: int) -> list[int]:
    """Let a source emit small batches under load; returns its linger after each."""
    task.idle, waits = False, []
    for _ in range(times):
        task.adapt(10)
        waits.append(task.linger)
    return waits


def test_an_idle_engine_never_lingers(stream: MakeStream, clock: ManualClock) -> None:
    readings = stream("readings", "x int")
    run = run_plan(NODES, "s", [readings], clock=clock)
    for number in range(5):
        readings.rows((number,))
        assert len(run.rows()) == number + 1


def test_small_trains_under_load_lengthen_the_linger_up_to_its_limit(
    stream: MakeStream, clock: ManualClock
) -> None:
    task = task_of(stream, clock, latency_target=8_000)
    waits = grown(task, 12)
    assert waits[:3] == [50_000, 100_000, 200_000]
    assert waits[-1] == 2_000_000  # a quarter of the target of 8 ms
    task.waiting_since = clock.now()
    assert not task.due(clock.now())
    task.idle = True
    assert task.due(clock.now())


def test_full_trains_or_an_idle_engine_shorten_the_linger(stream: MakeStream, clock: ManualClock) -> None:
    task = task_of(stream, clock)
    high = grown(task, 6)[-1]
    task.adapt(4096)
    assert task.linger == high // 2
    task.idle = True
    for _ in range(10):
        task.adapt(10)
    assert task.linger == 0


def test_a_source_emits_when_its_linger_is_over(stream: MakeStream, clock: ManualClock) -> None:
    task = task_of(stream, clock)
    grown(task, 6)
    task.waiting_since = clock.now()
    assert not task.due(clock.now())
    clock.advance(nanoseconds=task.linger)
    assert task.due(clock.now())


def test_a_source_that_the_policy_serves_lingers_too(stream: MakeStream, clock: ManualClock) -> None:
    readings, others = stream("readings", "x int"), stream("others", "x int")
    engine = Engine(clock, sources=SourceService.PER_CLASS, train=64)
    for each in (readings, others):
        engine.attach(each.name, each.reader)
    run = run_plan(NODES, "s", [readings], engine=engine)
    nodes = {**NODES, "in": {"op": "source", "stream": "others"}}
    flood = run_plan(nodes, "s", [others], engine=engine, id_="flood", options=RunOptions())
    grown(run.query.sources["in"], 6)
    others.rows(*((number,) for number in range(20_000)))
    engine.step()  # busy from here on
    readings.rows((1,))
    while len(flood.answers()) < 5_000:
        engine.step()
        assert not run.answers()
    clock.advance(nanoseconds=run.query.sources["in"].linger)
    engine.run(80)
    assert run.answers() == [(1,)]
    assert len(flood.answers()) < 20_000
    engine.run()
    assert len(flood.answers()) == 20_000


@pytest.mark.parametrize("policy", ["rr", "cqc", "abd", "path_capacity"])
def test_a_paused_query_leaves_the_engine_idle(stream: MakeStream, clock: ManualClock, policy: str) -> None:
    readings = stream("readings", "x int")
    engine = Engine(clock, policy, sources=SourceService.PER_CLASS)
    engine.attach(readings.name, readings.reader)
    run = run_plan(NODES, "s", [readings], engine=engine)
    readings.rows((1,))
    engine.step()
    readings.rows((2,))
    engine.pause("q")
    assert engine.run(1000) < 1000
    engine.resume("q")
    readings.rows((3,))
    assert run.rows()[-1] == (3,)
