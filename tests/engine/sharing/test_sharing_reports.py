"""Metrics of members of a shared pipeline: each reports the memory held there, and totals count it once."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conftest import MakeStream
from tests.support.engine.shared_pipelines import SECOND, SOURCE, Bench, hot, readings_of, shares

from mavstream_protocol.scheduling import Sharing
from mavstream_server.engine.reporting import class_metrics, query_metrics, target_metrics
from mavstream_server.testing import ManualClock, PlanRun, ScriptedStream

GROUPED = {
    "in": SOURCE,
    "n": {"op": "aggregate", "input": "in", "by": ["x"], "window": SECOND, "compute": {"n": "count(*)"}},
    "out": {"op": "select", "input": "n", "where": "n > 0"},
}


@pytest.fixture
def readings(stream: MakeStream) -> ScriptedStream:
    return readings_of(stream)


def members(bench: Bench, nodes: dict[str, Any]) -> list[PlanRun]:
    """Start three queries and feed rows until they share, if sharing is on."""
    runs = [bench.start(f"q{number}", nodes) for number in range(3)]
    bench.feed(0, 1, 10, 11)
    return runs


def held(run: PlanRun) -> tuple[int, int, int]:
    """Return queued, state and backlog bytes, on which all reports must agree."""
    query = run.query
    targets, stats, memory = target_metrics(query, 1), query_metrics(query, 1), query.memory
    reports = {
        (targets.queued_bytes, targets.state_bytes, targets.backlog_bytes),
        (stats.queued_bytes, stats.state_bytes, stats.backlog_bytes),
        memory,
    }
    assert len(reports) == 1
    return memory


def unread(bench: Bench) -> None:
    """Append rows that are not read yet."""
    bench.readings.rows(*[(12_000 + value, value) for value in range(12, 40)])


def test_a_member_reports_the_metrics_that_it_would_report_alone(
    readings: ScriptedStream, clock: ManualClock
) -> None:
    shared, alone = (Bench(readings, clock, sharing=mode) for mode in (Sharing.CLASS, Sharing.OFF))
    theirs, own = ([bench.start(f"q{n}", GROUPED) for n in range(3)] for bench in (shared, alone))
    shared.feed(0, 1, 10, 11)
    alone.settle()
    assert shares(*theirs)
    assert not shares(*own)
    assert [held(run) for run in theirs] == [held(run) for run in own]
    assert held(theirs[0])[1] > 0
    unread(shared)
    assert [held(run) for run in theirs] == [held(run) for run in own]
    assert held(theirs[0])[2] > 0
    for run, other in zip(theirs, own, strict=True):
        assert target_metrics(run.query, 1)[:5] == target_metrics(other.query, 1)[:5]


def test_rows_queued_in_a_shared_pipeline_count_for_each_member(
    readings: ScriptedStream, clock: ManualClock
) -> None:
    bench = Bench(readings, clock, policy="rr", options={"tuples": 2})
    runs = members(bench, hot())
    assert shares(*runs)
    unread(bench)
    while not bench.pipeline().network.account.rows:
        assert bench.engine.step()
    waiting = bench.pipeline().network.account.nbytes
    assert [held(run)[0] for run in runs] == [waiting] * 3
    bench.engine.run()
    assert [held(run) for run in runs] == [(0, 0, 0)] * 3


def test_shed_rows_stay_in_the_report_of_a_query_that_shares_again(
    readings: ScriptedStream, clock: ManualClock
) -> None:
    bench = Bench(readings, clock)
    run = members(bench, hot())[0]
    bench.engine.changes.shed("q0", 0.5)
    bench.feed(*range(12, 40))
    bench.engine.changes.shed("q0", 0)
    bench.feed(40, 41)
    assert run.query.shared
    shed = query_metrics(run.query, 1).counters["in"]["shed"]
    assert shed > 0
    assert target_metrics(run.query, 1).shed == shed


def test_class_totals_count_a_shared_pipeline_once(readings: ScriptedStream, clock: ManualClock) -> None:
    bench = Bench(readings, clock)
    runs = members(bench, GROUPED)
    assert shares(*runs)
    unread(bench)
    pipeline = bench.pipeline().memory
    assert pipeline.state > 0
    assert [held(run) for run in runs] == [pipeline] * 3, "their own operators hold nothing"
    totals = class_metrics(bench.engine).classes["default"]
    assert (totals.queued_bytes, totals.state_bytes, totals.backlog_bytes) == pipeline
    assert totals.queries == 3


def test_a_pipeline_shared_by_classes_counts_in_the_class_that_is_charged(
    readings: ScriptedStream, clock: ManualClock
) -> None:
    bench = Bench(readings, clock, sharing=Sharing.ALL)
    bench.engine.set_class("high", 6)
    runs = [bench.start("a", GROUPED), bench.start("b", GROUPED, class_name="high")]
    bench.feed(0, 1)
    assert shares(*runs)
    unread(bench)
    totals = class_metrics(bench.engine).classes
    pipeline = bench.pipeline().memory
    assert (totals["high"].state_bytes, totals["high"].backlog_bytes) == (pipeline.state, pipeline.backlog)
    assert (totals["default"].state_bytes, totals["default"].backlog_bytes) == (0, 0)
