"""Rules of the simulator: joins, preemption, source service, changes, and metrics for policies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.simulation.scenarios import (
    US,
    departures_us,
    direct,
    output,
    query,
    recorded,
    responses_us,
    select,
)

from mavstream_server.scheduling.statistics import Statistics
from mavstream_server.simulation import simulate
from mavstream_server.simulation.run.driver import Driver
from mavstream_server.simulation.run.execute import run
from mavstream_server.simulation.run.source_order import BroadcastDiskOrder, RoundRobinOrder
from mavstream_server.simulation.scenario import (
    Change,
    OperatorSpec,
    Overheads,
    QuerySpec,
    ResponseFrom,
    Scenario,
    Service,
    SourceSpec,
    StatisticsKind,
    StreamSpec,
)


def join(**more: Any) -> QuerySpec:
    return query("j", OperatorSpec("both", "join", ("l", "r"), 10 * US, **more), output("both"))


# Joins


def test_a_joined_tuple_carries_the_later_arrival() -> None:
    """The left tuple of 0 is processed after the right one of 5, which arrived while the core was busy."""
    busy = query("busy", output("b", 20), class_name="busy")
    plan = direct(join(), busy, streams=(recorded("l", 2), recorded("r", 5), recorded("b", 0)))
    result = run(plan, "rr")
    # Taken together at 20, the older first: it has no partner, the one of 5 joins the one of 2.
    assert departures_us(result, "j") == [40, 40]
    assert responses_us(result, "j") == [38, 35]
    late = replace(plan, streams=(recorded("l", 60), recorded("r", 5, 61), recorded("b", 0, 59)))
    # At 79 the left one of 60 joins the right one of 61 only if that was processed before.
    assert responses_us(run(late, "rr"), "j") == [25, 39, 38]


def test_join_partners_are_within_the_window() -> None:
    plan = direct(join(), streams=(recorded("l", 0), recorded("r", 100)))
    first = replace(plan, streams=(recorded("l", 100), recorded("r", 0)), cores=1)
    assert responses_us(run(first, "rr"), "j") == [10, 10]
    ahead = direct(
        query(
            "j",
            select("slow", "l", 200),
            OperatorSpec("both", "join", ("slow", "r"), 10 * US, window=30 * US),
            output("both"),
        ),
        streams=(recorded("l", 0), recorded("r", 100)),
        cores=2,
    )
    # On another core the right tuple of 100 passes at 110. The left one of 0 is processed at 200, and joins
    # a partner that is at most 30 later than itself: it carries 30.
    assert responses_us(run(ahead, "morr"), "j") == [10, 180]


def test_outputs_of_a_join_have_their_own_cost() -> None:
    """11.6 ms per tuple and 1 ms per output, of which there is one for every two tuples."""
    plan = direct(
        query(
            "j",
            OperatorSpec("both", "join", ("l", "r"), 11_600 * US, per_output=1000 * US, selectivity=0.5),
            output("both"),
        ),
        streams=(recorded("l", 0), recorded("r", 20_000)),
    )
    assert departures_us(run(plan, "rr"), "j") == [20_000 + 11_600 + 1000]


def test_a_synchronised_join_waits_for_the_other_stream() -> None:
    plan = direct(join(synchronised=True, window=0), streams=(recorded("l", 0, 50), recorded("r", 40)))
    result = run(plan, "rr")
    # The tuple of 0 is released by the one of 40, that one by the one of 50, and the one of 50 when
    # nothing more can arrive.
    assert departures_us(result, "j") == [50, 60, 70]
    assert responses_us(result, "j") == [50, 20, 20]
    assert departures_us(run(replace(plan, queries=(join(window=0),)), "rr"), "j") == [10, 50, 60]


# Preemption


def preempted(*arrivals: float, policy: str = "prb") -> dict[str, list[float]]:
    """A long tuple of 100 at 0, short ones of 10 at the given times, taken one by one."""
    queries = [
        query(name, output(name, cost), class_name=name) for name, cost in (("long", 100), ("short", 10))
    ]
    plan = direct(*queries, streams=(recorded("long", 0), recorded("short", *arrivals)))
    result = run(plan, policy, {"tuples": 1})
    return {name: departures_us(result, name) for name in ("long", "short")}


def test_a_preempted_tuple_continues_where_it_was() -> None:
    assert preempted(50, policy="rb") == {"long": [100], "short": [110]}
    # Of the long one 50 are left, which is more than 10: it waits, and ends 10 later.
    assert preempted(50) == {"long": [110], "short": [60]}
    # Preempted twice, and again by one that arrives while a short one is processed and has to wait for it.
    assert preempted(20, 60, 65) == {"long": [130], "short": [30, 70, 80]}


def test_a_nearly_finished_tuple_is_not_preempted() -> None:
    # At 95 the long one has 5 left: the rate of what is left is the higher one.
    assert preempted(95) == {"long": [100], "short": [110]}


def test_preemption_neither_loses_nor_duplicates_tuples() -> None:
    chains = [
        query(
            f"q{index}",
            select("o", f"s{index}", cost, selectivity=0.3, random=True),
            output("o", 1),
            class_name=f"q{index}",
        )
        for index, cost in enumerate((100, 30, 9))
    ]
    streams = tuple(
        StreamSpec(f"s{index}", rate, tuples=500) for index, rate in enumerate((3000, 8000, 20_000))
    )
    for tuples in (1, 8):
        plain = run(direct(*chains, streams=streams), "rb", {"tuples": tuples}, seed=2)
        cut = run(direct(*chains, streams=streams), "prb", {"tuples": tuples}, seed=2)
        assert cut.counts.preemptions > 20
        assert cut.counts.dropped == plain.counts.dropped
        assert cut.counts.answers == plain.counts.answers
        # The same total work: preemption costs nothing here.
        assert cut.utilisation * cut.seconds == pytest.approx(plain.utilisation * plain.seconds, rel=1e-3)


def test_the_example_of_the_prb_paper() -> None:
    """2.4: costs of 10, 10, 10 and 40 for O1 to O4; one tuple on each stream; means of 60 and 75 units."""
    tree = query(
        "q",
        select("O1", "s1", 10),
        select("O4", "s2", 40),
        OperatorSpec("O2", "union", ("O1", "O4"), 10 * US),
        OperatorSpec("O3", "output", ("O2",), 10 * US),
    )
    plan = direct(tree, streams=(recorded("s1", 0), recorded("s2", 0)))
    assert responses_us(run(plan, "rb", {"tuples": 1}), "q") == [30, 90]
    swapped = replace(plan, streams=(recorded("s2", 0), recorded("s1", 0)))
    # Policies that use arrival and then order take the first stream, the costly one.
    assert responses_us(run(swapped, "fifo", {"tuples": 1}), "q") == [60, 90]


def test_an_exact_quantum_interrupts_a_tuple() -> None:
    queries = [query(name, output(name, 30), class_name=name) for name in ("a", "b")]
    plan = direct(*queries, streams=(recorded("a", 0), recorded("b", 0)))
    whole = run(plan, "rr", {"quantum_us": 10})
    assert [departures_us(whole, name) for name in ("a", "b")] == [[30], [60]]
    parted = run(replace(plan, exact_quantum=True), "rr", {"quantum_us": 10})
    assert [departures_us(parted, name) for name in ("a", "b")] == [[50], [60]]
    assert parted.counts.slices == 6


def test_a_preempted_call_without_tuples_keeps_the_answers_before_it() -> None:
    """On several cores an operator can run and be preempted while no tuples wait at it."""
    result = simulate("5G_4", "prb", seconds=0.3, seed=3)
    left = sum(answers.departures.size for answers in result.queries.values())
    # Slices that still run at the end are counted already; their answers have not departed yet.
    assert result.counts.answers - result.cores * 64 <= left <= result.counts.answers


# Sources


def served(service: Service, policy: str = "rr", **more: Any) -> Scenario:
    """Two streams with a source of 10 + 5 per tuple each, and an operator of 20 per tuple."""
    queries = [query(name, output(name, 20), class_name=name) for name in ("a", "b")]
    return direct(
        *queries,
        streams=(recorded("a", 0, 1), recorded("b", 0)),
        sources=SourceSpec(service, cost=5 * US, setup=10 * US),
        **more,
    )


def test_sources_between_slices_use_time_of_the_core() -> None:
    result = run(served(Service.BETWEEN_SLICES), "rr")
    # Sources a and b read a tuple each up to 30, and a's answer leaves at 50. Then a reads its second one.
    assert departures_us(result, "a") == [50, 105]
    assert departures_us(result, "b") == [85]
    assert result.utilisation == pytest.approx(1)
    assert result.seconds * 1e6 == pytest.approx(3 * 20 + 3 * 15)


def test_sources_when_idle_wait_for_empty_queues() -> None:
    result = run(served(Service.WHEN_IDLE), "rr")
    # Both are read up to 30 and answered up to 70; only then a's second tuple is read.
    assert departures_us(result, "a") == [50, 105]
    assert departures_us(result, "b") == [70]


def test_sources_on_their_own_core_use_no_time_of_the_others() -> None:
    result = run(served(Service.OWN_CORE), "rr")
    # a is read at 0 and emitted at 15, b at 30, a's second tuple at 45.
    assert departures_us(result, "a") == [35, 75]
    assert departures_us(result, "b") == [55]
    assert result.source_utilisation == pytest.approx(45 / 75)
    assert result.utilisation == pytest.approx(60 / 75)


def test_two_source_cores_read_two_sources_at_once() -> None:
    plan = served(Service.OWN_CORE)
    result = run(replace(plan, sources=replace(plan.sources, cores=2)), "rr")
    assert departures_us(result, "a") == [35, 75]
    assert departures_us(result, "b") == [55]
    assert result.source_utilisation == pytest.approx(45 / 2 / 75)


def test_policies_can_serve_sources() -> None:
    driver = Driver(served(Service.PER_CLASS), "hr")
    kinds = [[operator.operator for operator in one.operators] for one in driver.network.queries.values()]
    assert kinds == [["source", "output"], ["source", "output"]]
    assert [[one.number for one in path] for path in driver.network.queries["b"].paths] == [[3, 4]]
    result = run(served(Service.PER_CLASS), "cqc")
    assert result.seconds * 1e6 == pytest.approx(3 * 20 + 3 * 15)
    assert len(departures_us(result, "a")) == 2


def test_a_stream_that_two_queries_read_reaches_both() -> None:
    queries = [query(name, output("s", 10), class_name=name) for name in ("a", "b")]
    for service in (Service.DIRECT, Service.OWN_CORE, Service.PER_CLASS, Service.BETWEEN_SLICES):
        plan = direct(*queries, streams=(recorded("s", 0, 1, 2),), sources=SourceSpec(service))
        result = run(plan, "rr")
        assert result.counts.answers == result.counts.arrived == 6


def test_response_times_can_begin_at_the_source() -> None:
    plan = served(Service.OWN_CORE)
    result = run(replace(plan, response_from=ResponseFrom.SOURCE_READ), "rr")
    # Read at 0, 15 and 30.
    assert responses_us(result, "a") == [35, 45]
    assert responses_us(result, "b") == [40]


# Changes, and metrics for policies


def test_selectivities_costs_and_priorities_change() -> None:
    plan = direct(
        query("q", select("o", "s", 10, selectivity=0.5), output("o", 1)),
        streams=(recorded("s", *range(0, 4000, 100)),),
        changes=(
            Change(2_000_000, selectivities={("q", "o"): 1.0}, costs={("q", "o"): 20 * US}),
            Change(1_000_000, priorities={"c": 7}),
        ),
    )
    result = run(plan, "rr")
    assert responses_us(result, "q") == [11] * 10 + [21] * 20
    assert [priorities for _, priorities in result.priorities] == [{"c": 1}, {"c": 7}]


def test_metrics_are_measured_as_in_the_live_engine() -> None:
    """Published after 200 tuples, with set-up spread over the tuples of a call; the true ones until then."""
    plan = direct(
        query("q", select("o", "s", 10, selectivity=0.25, setup=5 * US, size=40.0), output("o", 1)),
        streams=(recorded("s", *range(0, 30_000, 100)),),
        statistics=StatisticsKind.MEASURED,
    )
    driver = Driver(replace(plan, seconds=0.0195), "rr")
    driver.run()
    operator = driver.network.queries["q"].tasks[0]
    assert operator.statistics == Statistics(15_000, 10_000, 0.25, 40.0)
    driver = Driver(plan, "rr")
    driver.run()
    operator = driver.network.queries["q"].tasks[0]
    assert operator.statistics == Statistics(15_000, 15_000, 0.25, 40.0, tuples=200)
    assert driver.network.queries["q"].units.based_on(operator).cost_per_tuple == 15_000


def test_queues_are_sampled() -> None:
    plan = direct(
        query("q", select("o", "s", 1000, size=30.0), output("o", 1)),
        streams=(replace(recorded("s", 0, 0, 0, 0), size=50.0),),
        sample_s=0.001,
        overheads=Overheads(),
    )
    result = run(plan, "rr", {"tuples": 1})
    # Up to 1 ms the first tuple is processed, and three wait; and so on.
    assert result.queues.bytes.tolist() == [150, 100, 50, 0]
    assert result.queues.max_bytes == 150
    assert result.queues.mean_tuples == 1.5


@pytest.mark.parametrize(
    ("line", "order"),
    [
        (RoundRobinOrder(), [0, 1, 2, 0, 1, 2, 0, 1, 2]),
        # Priorities 4, 2 and 1: as many slots in a round, spread over it.
        (BroadcastDiskOrder([4, 2, 1]), [0, 1, 0, 2, 0, 1, 0, 0, 1]),
    ],
    ids=["round_robin", "broadcast_disk"],
)
def test_sources_that_always_have_tuples_are_read_in_order(
    line: RoundRobinOrder | BroadcastDiskOrder, order: list[int]
) -> None:
    for index in range(3):
        line.add(index)
    taken = []
    for _ in order:
        taken.append(line.take())
        line.add(taken[-1])
    assert taken == order
