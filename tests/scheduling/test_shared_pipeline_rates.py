"""Policies rate a shared pipeline by the operators of its members and by the number of members."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conftest import MakeStream
from tests.support.engine.shared_pipelines import Bench, hot, readings_of, shares

from mavstream_protocol.scheduling import SourceService
from mavstream_server.engine.sharing.shared_pipeline import SharedPipeline
from mavstream_server.scheduling.mechanisms.segments import AnswerMemory
from mavstream_server.scheduling.statistics import Statistics
from mavstream_server.testing import (
    ManualClock,
    PlanRun,
    ScriptedNetwork,
    ScriptedQuery,
    ScriptedStream,
    Step,
)

PREFIX = (Step("select", 1.0, 100.0),)
PASSING, SELECTIVE, SLOW = Step("select", 1.0, 100.0), Step("select", 0.01, 100.0), Step("join", 0.1, 1e6)

RATES: list[tuple[str, dict[str, Any]]] = [
    ("hr", {}),
    ("wehr", {}),
    ("rb", {}),
    ("prb", {}),
    ("cqc", {"inner": {"policy": "hr"}}),
    ("path_capacity", {}),
]
MEMORY: list[tuple[str, dict[str, Any]]] = [
    ("chain", {}),
    # If answers counted as held, members that pass every tuple would free nothing.
    ("segment", {"answers": "freed"}),
    ("simplified_segment", {"answers": "freed"}),
    ("cqc", {"inner": {"policy": "segment", "options": {"answers": "freed"}}}),
]


def named(policies: list[tuple[str, dict[str, Any]]]) -> list[str]:
    inner = [
        [f"-{one['policy']}" for one in options.values() if isinstance(one, dict)] for _, options in policies
    ]
    return ["".join([name, *within]) for (name, _), within in zip(policies, inner, strict=True)]


by_rate = pytest.mark.parametrize(("policy", "options"), RATES, ids=named(RATES))
by_memory = pytest.mark.parametrize(("policy", "options"), MEMORY, ids=named(MEMORY))
by_any = pytest.mark.parametrize(("policy", "options"), RATES + MEMORY, ids=named(RATES + MEMORY))
by_output_rate = pytest.mark.parametrize(("policy", "options"), RATES[:-1], ids=named(RATES[:-1]))


def first_to_emit(network: ScriptedNetwork, *ids: str) -> str:
    """Let tuples arrive at pipelines; returns the first that emits some."""
    for id_ in ids:
        network.arrive(id_, 10)
    while (slice_ := network.step()) is not None:
        for operator in slice_.operators:
            if operator.operator == "fan_out":
                return operator.query.id
    raise AssertionError("nobody handed on anything")


# By number of members


@by_any
def test_the_pipeline_with_more_members_goes_first(policy: str, options: dict[str, Any]) -> None:
    network = ScriptedNetwork(policy, options)
    network.add_shared("few", PREFIX, [(PASSING,)] * 2)
    network.add_shared("many", PREFIX, [(PASSING,)] * 5)
    assert first_to_emit(network, "few", "many") == "many"


@by_memory
def test_a_fan_out_frees_no_memory_however_fast_it_is(policy: str, options: dict[str, Any]) -> None:
    network = ScriptedNetwork(policy, options)
    network.add_shared("shared", (Step("select", 1.0, 10.0),), [(PASSING,)] * 3)
    network.add("alone", (Step("select", 0.4, 100.0),))
    network.arrive("shared", 10)
    network.arrive("alone", 10)
    ran = [operator.query.id for slice_ in network.run() for operator in slice_.operators]
    assert ran.index("alone") < ran.index("shared"), "it is the one that frees memory"


# By the operators above


@by_output_rate
def test_the_pipeline_with_more_answers_per_tuple_goes_first(policy: str, options: dict[str, Any]) -> None:
    network = ScriptedNetwork(policy, options)
    network.add_shared("barren", PREFIX, [(SELECTIVE,)] * 3)
    network.add_shared("fertile", PREFIX, [(PASSING,)] * 3)
    assert first_to_emit(network, "barren", "fertile") == "fertile"


@by_any
def test_the_pipeline_that_is_cheaper_above_goes_first(policy: str, options: dict[str, Any]) -> None:
    network = ScriptedNetwork(policy, options)
    network.add_shared("dear", PREFIX, [(Step("join", 1.0, 5000.0),)] * 3)
    network.add_shared("cheap", PREFIX, [(PASSING,)] * 3)
    assert first_to_emit(network, "dear", "cheap") == "cheap"


@by_memory
def test_the_pipeline_whose_tuples_are_filtered_above_goes_first(
    policy: str, options: dict[str, Any]
) -> None:
    network = ScriptedNetwork(policy, options)
    network.add_shared("passing", PREFIX, [(PASSING,)] * 3)
    network.add_shared("filtered", PREFIX, [(SELECTIVE,)] * 3)
    assert first_to_emit(network, "passing", "filtered") == "filtered"


@by_rate
def test_a_query_is_not_delayed_by_sharing_with_a_slow_one(policy: str, options: dict[str, Any]) -> None:
    network = ScriptedNetwork(policy, options)
    network.add("alone", (Step("select", 1.0, 300.0), PASSING))
    network.add_shared("shared", PREFIX, [(PASSING,), (SLOW,)])
    for id_ in ("alone", "shared"):
        network.arrive(id_, 10)
    first = network.step()
    assert first is not None
    assert first.operators[0].query.id == "shared"


@by_memory
def test_memory_is_not_freed_later_because_of_a_slow_member(policy: str, options: dict[str, Any]) -> None:
    network = ScriptedNetwork(policy, options)
    network.add("alone", (Step("select", 0.01, 500.0),))
    network.add_shared("shared", PREFIX, [(SELECTIVE,), (SLOW,)])
    for id_ in ("alone", "shared"):
        network.arrive(id_, 10)
    first = network.step()
    assert first is not None
    assert first.operators[0].query.id == "shared"


def test_priorities_of_classes_count_too() -> None:
    network = ScriptedNetwork("wehr")
    network.set_priority("high", 10)
    network.add_shared("many", PREFIX, [(PASSING,)] * 5)
    network.add_shared("few", PREFIX, [(PASSING,)] * 2, "high")
    assert first_to_emit(network, "many", "few") == "few"


# Values of the rates


def rates(pipeline: ScriptedQuery) -> list[float]:
    return [pipeline.units.fragments[operator.number].rate for operator in pipeline.operators]


def test_a_rate_is_the_answers_of_members_over_the_cost_of_prefix_and_members() -> None:
    network = ScriptedNetwork("hr")
    prefix = (Step("select", 0.5, 40.0),)
    pipeline = network.add_shared("p", prefix, [(Step("select", 0.5, 60.0),), (Step("select", 0.4, 50.0),)])
    # An output costs 100 ns per tuple: above the fan-out 60 + 50 and 50 + 40.
    cost, given = 110.0 + 90.0, 0.5 + 0.4
    assert rates(pipeline) == pytest.approx([0.5 * given / (40 + 0.5 * (100 + cost)), given / (100 + cost)])
    waiting = pipeline.units.fragments[pipeline.operators[0].number]
    assert waiting.answers == pytest.approx(0.5 * given)


def test_a_slow_member_is_left_out_of_the_rate_and_counted_among_the_answers() -> None:
    network = ScriptedNetwork("hr")
    pair = network.add_shared("pair", PREFIX, [(PASSING,), (SLOW,)])
    single = network.add_shared("single", PREFIX, [(PASSING,)])
    assert rates(pair) == rates(single)
    leaf = pair.operators[0].number
    assert pair.units.fragments[leaf].answers == pytest.approx(1.1)


def test_with_one_member_a_path_has_the_capacity_of_the_whole() -> None:
    network = ScriptedNetwork("path_capacity")
    pipeline = network.add_shared("p", (Step("select", 0.5, 40.0),), [(Step("select", 0.5, 60.0),)])
    (path,) = pipeline.units.paths
    assert path.processing == pytest.approx(1 / (40 + 0.5 * (100 + 60 + 0.5 * 100)))
    assert path.operators == tuple(pipeline.operators), "it runs its own operators"


def test_memory_in_a_pipeline_counts_for_each_member_and_is_freed_above_the_fan_out() -> None:
    network = ScriptedNetwork("segment")
    passing = network.add_shared("passing", PREFIX, [(SELECTIVE,), (PASSING,)])
    (segment,) = passing.units.segments(AnswerMemory.FREED)
    assert segment.operators == tuple(passing.operators)
    # A tuple has 64 bytes. The prefix frees nothing in 200 ns, the members all of it in 101 and 200 ns.
    assert segment.release == pytest.approx(2 * 64 / (200 + 101 + 200))
    dropping = network.add_shared("dropping", (Step("select", 0.5, 40.0),), [(SELECTIVE,), (PASSING,)])
    (segment,) = dropping.units.segments(AnswerMemory.FREED)
    # Half of it is freed for both at once, in 40 + 50 ns; no member frees as much per time.
    assert segment.release == pytest.approx(2 * 32 / 90)


def test_rates_follow_members_that_attach_detach_and_change() -> None:
    network = ScriptedNetwork("hr")
    one = network.add_shared("one", PREFIX, [(PASSING,)] * 3)
    two = network.add_shared("two", PREFIX, [(PASSING,)] * 3)
    assert rates(one) == rates(two)
    member = network.add("late", (PASSING,))
    network.attach("two", member)
    assert rates(one)[0] < rates(two)[0]
    network.detach("two", member)
    assert rates(one) == rates(two)
    below = network.queries["one/0"].operators[0]
    network.measure(below, below.statistics._replace(cost_per_tuple=10.0))
    assert rates(one)[0] > rates(two)[0]


# In the engine


@pytest.fixture
def readings(stream: MakeStream) -> ScriptedStream:
    return readings_of(stream)


def members(bench: Bench, count: int, where: str = "x >= 10") -> list[PlanRun]:
    """Start queries with a common select and a project of their own."""
    return [bench.start(f"{where} {n}", hot(where, compute=f"x + {n}")) for n in range(count)]


def leaf_rate(pipeline: SharedPipeline) -> float:
    return pipeline.units.fragments[pipeline.tasks["hot"].number].rate


def expected_rate(count: int) -> float:
    """A select, the fan-out, and a project and an output for each, at 100 ns before anything is measured."""
    return count / (200 + count * 200)


@pytest.mark.parametrize("policy", ["hr", "wehr", "rb"])
def test_pipelines_of_the_engine_are_rated_by_the_members_they_have(
    readings: ScriptedStream, clock: ManualClock, policy: str
) -> None:
    bench = Bench(readings, clock, policy=policy, sources=SourceService.OWN_CORE)
    runs = [*members(bench, 2, "x >= 0"), *members(bench, 4, "x >= 1")]
    bench.feed(1, 2)
    assert shares(*runs)
    few, many = sorted(bench.pipelines, key=lambda pipeline: len(pipeline.members))
    assert leaf_rate(few) == pytest.approx(expected_rate(2))
    assert leaf_rate(many) == pytest.approx(expected_rate(4))
    readings.rows(*[(value * 1000, value) for value in range(3, 10)])
    bench.engine.step()
    assert few.tasks["hot"].ready, "its rows were read,"
    assert many.tasks["#output"].ready, "and the first slice was the other's"


def test_a_rate_follows_members_that_detach_at_once(readings: ScriptedStream, clock: ManualClock) -> None:
    bench = Bench(readings, clock, policy="hr")
    runs = members(bench, 4)
    bench.feed(10, 11)
    assert shares(*runs)
    pipeline = bench.pipeline()
    bench.engine.changes.shed(runs[0].query.id, 0.5)
    assert leaf_rate(pipeline) == pytest.approx(expected_rate(3))
    bench.engine.stop(runs[1].query.id)
    bench.engine.run()
    assert leaf_rate(pipeline) == pytest.approx(expected_rate(2))


def test_a_rate_follows_the_metrics_of_members_when_the_pipeline_publishes_its_own(
    readings: ScriptedStream, clock: ManualClock
) -> None:
    bench = Bench(readings, clock, policy="hr")
    runs = members(bench, 2)
    bench.feed(10, 11)
    assert shares(*runs)
    pipeline, member = bench.pipeline(), runs[0].query
    assert leaf_rate(pipeline) == pytest.approx(expected_rate(2))
    member.tasks["out"].collector.published = Statistics(cost_per_tuple=100.0, selectivity=0.1)
    bench.engine.policy_host.refresh(member)
    assert leaf_rate(pipeline) == pytest.approx(expected_rate(2))
    bench.engine.policy_host.refresh(pipeline)
    fan_out = pipeline.units.fragments[pipeline.tasks["#output"].number]
    assert fan_out.answers == pytest.approx(1.1)
    bench.engine.policy_host.refresh(member)
    before = pipeline.units
    bench.feed(*range(20, 260))
    assert pipeline.units is not before
