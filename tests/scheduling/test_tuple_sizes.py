"""Tuple sizes: the input size of a leaf is the output size of its source, with and without sharing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.conftest import MakeStream
from tests.support.engine.shared_pipelines import Bench, shares
from tests.support.simulation.scenarios import direct, output, query, recorded, select

from mavstream_protocol.scheduling import SourceService
from mavstream_server.scheduling.bases.sources_last import SourcesLast
from mavstream_server.scheduling.mechanisms.progress_chart import progress_chart
from mavstream_server.scheduling.mechanisms.segments import AnswerMemory
from mavstream_server.scheduling.mechanisms.units import QueryUnits
from mavstream_server.scheduling.policies.cqc import QueryClasses
from mavstream_server.scheduling.statistics import StatisticsCollector
from mavstream_server.simulation.run.driver import Driver
from mavstream_server.simulation.scenario import Service
from mavstream_server.testing import ManualClock, ScriptedNetwork, ScriptedStream, Step

COLUMN = 8  # bytes of an int; every row has its arrival and its time, too
CQC_OVER_SEGMENT = {"inner": {"policy": "segment"}}


def wide(stream: MakeStream) -> ScriptedStream:
    """Return a stream of five numbers: 56 bytes a row with its arrival and its time."""
    return stream("readings", "a int, b int, c int, d int, e int")


def narrowing() -> dict[str, Any]:
    """Return a plan whose leaf makes one column of five."""
    return {
        "in": {"op": "source", "stream": "readings"},
        "sum": {"op": "project", "input": "in", "compute": {"y": "a + b + c + d + e"}},
        "out": {"op": "select", "input": "sum", "where": "y >= 0"},
    }


def feed(bench: Bench, rows: int) -> None:
    bench.readings.columns({name: list(range(rows)) for name in "abcde"})
    bench.settle()


def entering(units: QueryUnits) -> float:
    """Return the size in bytes of a tuple at the first operator above the source."""
    (route,) = units.routes
    (leaf,) = (stage for stage in route if stage.operator.leaf)
    return leaf.size_in


@pytest.mark.parametrize(
    ("policy", "options", "sources"),
    [
        ("segment", {}, None),
        ("simplified_segment", {}, None),
        ("chain", {}, None),
        ("chain", {}, SourceService.WHEN_IDLE),
        ("segment", {}, SourceService.PER_CLASS),
        ("cqc", CQC_OVER_SEGMENT, None),
    ],
)
def test_the_input_size_of_a_leaf_is_the_output_size_of_its_source(
    stream: MakeStream,
    clock: ManualClock,
    policy: str,
    options: dict[str, Any],
    sources: SourceService | None,
) -> None:
    bench = Bench(wide(stream), clock, policy=policy, options=options, sources=sources, train=256)
    run = bench.start("q", narrowing())
    feed(bench, 1000)
    task = run.query.tasks["sum"]
    assert task.statistics.tuples >= 200
    assert task.statistics.tuple_size == pytest.approx(3 * COLUMN)
    assert entering(run.query.units) == pytest.approx(7 * COLUMN)


def test_answers_of_a_running_query_have_a_size(stream: MakeStream, clock: ManualClock) -> None:
    """The output emits nothing and so has a selectivity of 0, which must not make the size of answers 0."""
    bench = Bench(wide(stream), clock, policy="segment", train=256)
    nodes = {
        "in": {"op": "source", "stream": "readings"},
        "out": {"op": "select", "input": "in", "where": "a % 2 = 0"},
    }
    query = bench.start("q", nodes).query
    feed(bench, 1000)
    feed(bench, 1000)
    assert query.tasks["#output"].statistics.tuples >= 200
    (unit,) = query.units.segments()
    assert unit.release == pytest.approx(unit.processing * (1 - 0.5) * 7 * COLUMN, rel=0.02)
    (unit,) = query.units.segments(AnswerMemory.FREED)
    assert unit.release == pytest.approx(unit.processing * 7 * COLUMN, rel=0.02)


def test_the_policy_inside_a_class_sees_the_same_size_without_the_sources(
    stream: MakeStream, clock: ManualClock
) -> None:
    bench = Bench(wide(stream), clock, policy="cqc", options=CQC_OVER_SEGMENT, train=256)
    run = bench.start("q", narrowing())
    feed(bench, 1000)
    policy = bench.engine.policy
    assert isinstance(policy, QueryClasses)
    inner = policy._inner["default"]
    assert isinstance(inner, SourcesLast)
    seen = inner._seen["q"]
    assert entering(seen.units) == pytest.approx(7 * COLUMN)
    (route,) = seen.units.routes
    assert progress_chart(route)[0].size == pytest.approx(7 * COLUMN)
    assert progress_chart(route)[1].size == pytest.approx(3 * COLUMN)
    assert run.query.id == "q"


def test_above_a_shared_prefix_the_input_size_is_the_output_size_of_the_prefix(
    stream: MakeStream, clock: ManualClock
) -> None:
    bench = Bench(wide(stream), clock, policy="segment", train=256)
    above = {"out": {"op": "project", "input": "hot", "compute": {"y": "a + b"}}}
    other = {"out": {"op": "project", "input": "hot", "compute": {"y": "a * b"}}}
    hot = {
        "in": {"op": "source", "stream": "readings"},
        "hot": {"op": "select", "input": "in", "where": "c >= 0"},
    }
    runs = [bench.start("first", {**hot, **above}), bench.start("second", {**hot, **other})]
    feed(bench, 300)
    assert shares(*runs)
    feed(bench, 1000)
    for run in runs:
        assert list(run.query.tasks) == ["out", "#output"]
        assert entering(run.query.units) == pytest.approx(4 * COLUMN), "a, b, arrival and time"


def test_the_size_is_measured_over_new_rows_and_smoothed() -> None:
    collector = StatisticsCollector()
    collector.measure_input(0, 0)
    assert collector.published.input_size == 64, "the default, while no row has arrived"
    collector.measure_input(200, 200 * 40)
    assert collector.published.input_size == 40, "what is measured first replaces it"
    collector.measure_input(400, 200 * 40 + 200 * 80)
    assert collector.published.input_size == 50, "a quarter of the way to 80"
    collector.add(200, 100, 100 * 8, 1000, 1)
    assert collector.published.input_size == 50
    assert collector.published.tuple_size == 8


def test_units_are_computed_again_when_rows_of_a_stream_become_longer() -> None:
    network = ScriptedNetwork("segment")
    query = network.add("q", [Step("p", 1.0, 1000, size=40, input_size=50), Step("s", 0.5, 500, size=40)])
    assert [len(unit.operators) for unit in query.units.segments()] == [3]  # 10 / 1000 < 20 / 500
    leaf = query.leaves[0]
    network.measure(leaf, leaf.statistics._replace(input_size=54))
    assert entering(query.units) == 50, "less than a tenth more"
    network.measure(leaf, leaf.statistics._replace(input_size=200))
    assert [len(unit.operators) for unit in query.units.segments()] == [1, 2]  # 160 / 1000


@pytest.mark.parametrize("service", [Service.DIRECT, Service.PER_CLASS])
def test_a_simulated_leaf_gets_tuples_of_the_size_of_its_stream(service: Service) -> None:
    plan = direct(
        query("q", select("o", "s", 10, selectivity=0.5, size=40.0), output("o", 1)),
        streams=(replace(recorded("s", 0), size=100.0),),
    )
    driver = Driver(replace(plan, sources=replace(plan.sources, service=service)), "segment")
    assert entering(driver.network.queries["q"].units) == 100.0
