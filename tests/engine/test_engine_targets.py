"""Targets of a running query change: they bound how long its sources linger."""

from __future__ import annotations

import pytest
from tests.conftest import MakeStream

from mavstream_protocol.expressions.parser import parse_scalar
from mavstream_protocol.scheduling import Sharing
from mavstream_server.engine.engine import Engine
from mavstream_server.testing import ManualClock, ScriptedStream, run_plan

HOT = {
    "in": {"op": "source", "stream": "readings"},
    "hot": {"op": "select", "input": "in", "where": "temp > 20"},
}
MS = 1_000_000


@pytest.fixture
def readings(stream: MakeStream) -> ScriptedStream:
    return stream("readings", "temp int")


def test_a_source_lingers_for_a_quarter_of_the_latency_target(readings: ScriptedStream) -> None:
    run = run_plan(HOT, "hot", [readings], latency_target=100_000)
    task = run.query.sources["in"]
    task.linger.length = 20 * MS
    run.engine.changes.aim_at("q", 8_000, {})
    assert (task.linger.limit, task.linger.length, run.query.request.latency_target) == (
        2 * MS,
        2 * MS,
        8_000,
    )
    run.engine.changes.aim_at("q", None, {})
    assert task.linger.limit == 50 * MS


def test_a_shared_source_lingers_no_longer_than_any_member_allows(
    readings: ScriptedStream, clock: ManualClock
) -> None:
    runs = [run_plan(HOT, "hot", [readings], clock=clock, id_="one")]
    runs.append(run_plan(HOT, "hot", [readings], engine=runs[0].engine, id_="other"))
    engine = runs[0].engine
    for _ in range(3):
        readings.rows((30,))
        engine.run()
        clock.advance(seconds=2)
    (part,) = runs[0].query.shared
    (source,) = part.pipeline.sources.values()
    engine.changes.aim_at("one", 8_000, {})
    assert source.linger.limit == 2 * MS
    engine.changes.aim_at("one", None, {})
    assert source.linger.limit == 50 * MS
    engine.changes.aim_at("one", 8_000, {})
    engine.changes.shed("one", 0.1)  # it detaches, and keeps its own linger
    assert (runs[0].query.sources["in"].linger.limit, engine.query("other").network.sources[0].ended) == (
        2 * MS,
        False,
    )


def test_rows_of_least_utility_are_shed_first_from_then_on(readings: ScriptedStream) -> None:
    run = run_plan(HOT, "hot", [readings])
    utility = parse_scalar("temp", {field.name: field for field in readings.schema})
    run.engine.changes.shed("q", 0.5)
    run.engine.changes.aim_at("q", None, {"readings": utility})
    readings.rows(*[(21 + n % 2,) for n in range(4 * 4096)], frame=512)
    last = run.rows()[-1000:]  # utilities are learned from the first block
    assert last.count((22,)) > 990


def test_a_query_without_a_target_of_its_own_has_that_of_its_class(readings: ScriptedStream) -> None:
    run = run_plan(HOT, "hot", [readings])
    engine, query, task = run.engine, run.query, run.query.sources["in"]
    assert (query.latency_target, task.linger.limit) == (None, 50 * MS)
    engine.set_class("default", 1, 20_000)
    assert (query.latency_target, task.linger.limit) == (20 * MS, 5 * MS)
    engine.changes.aim_at("q", 8_000, {})
    assert (query.latency_target, task.linger.limit) == (8 * MS, 2 * MS)
    engine.set_class("default", 1, 4_000)  # its own target stays
    assert (query.latency_target, task.linger.limit) == (8 * MS, 2 * MS)
    engine.changes.aim_at("q", None, {})
    assert (query.latency_target, task.linger.limit) == (4 * MS, 1 * MS)
    engine.set_class("default", 1)
    assert (query.latency_target, task.linger.limit) == (None, 50 * MS)


def test_the_target_follows_the_class_of_a_query(readings: ScriptedStream) -> None:
    run = run_plan(HOT, "hot", [readings])
    engine, query, task = run.engine, run.query, run.query.sources["in"]
    engine.set_class("fast", 6, 8_000)
    engine.changes.reclass("q", "fast")
    assert (query.latency_target, task.linger.limit) == (8 * MS, 2 * MS)
    later = run_plan(HOT, "hot", [readings], engine=engine, id_="later", class_name="fast")
    assert (later.query.latency_target, later.query.sources["in"].linger.limit) == (8 * MS, 2 * MS)
    engine.changes.reclass("q", "default")
    assert (query.latency_target, task.linger.limit) == (None, 50 * MS)


def test_what_queries_share_has_the_smallest_target_of_its_members(
    readings: ScriptedStream, clock: ManualClock
) -> None:
    engine = Engine(clock, sharing=Sharing.ALL)
    engine.attach(readings.name, readings.reader)
    for id_, class_name in (("one", "default"), ("other", "fast")):
        run_plan(HOT, "hot", [readings], engine=engine, id_=id_, class_name=class_name)
    for _ in range(3):
        readings.rows((30,))
        engine.run()
        clock.advance(seconds=2)
    (part,) = engine.query("one").shared
    pipeline = part.pipeline
    (source,) = pipeline.sources.values()
    engine.set_class("fast", 6, 8_000)
    assert (pipeline.latency_target, source.linger.limit) == (8 * MS, 2 * MS)
    engine.set_class("default", 1, 4_000)
    assert (pipeline.latency_target, source.linger.limit) == (4 * MS, 1 * MS)
    engine.changes.aim_at("one", 100_000, {})
    assert (pipeline.latency_target, source.linger.limit) == (8 * MS, 2 * MS)
    engine.set_class("fast", 6)
    assert (pipeline.latency_target, source.linger.limit) == (100 * MS, 25 * MS)
