"""Policies that schedule single operators: each by an example, with the numbers of the papers."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from mavstream_server.scheduling.mechanisms.progress_chart import envelope, progress_chart
from mavstream_server.scheduling.mechanisms.route import Stage, onward
from mavstream_server.scheduling.policies.prb import PreemptiveRateBased
from mavstream_server.scheduling.statistics import Statistics
from mavstream_server.scheduling.view import OperatorKind, Report
from mavstream_server.testing import ScriptedNetwork, ScriptedOperator, ScriptedQuery, Step


def free_output(network: ScriptedNetwork, query: ScriptedQuery) -> ScriptedQuery:
    """Make the output nearly free, since the papers' plans have none."""
    network.measure(query.operators[-1], Statistics(cost_per_tuple=1e-9, tuples=200))
    return query


def chosen(network: ScriptedNetwork) -> list[tuple[str, str]]:
    """Return who ran first in each slice until nothing waits."""
    return [(s.operators[0].query.id, s.operators[0].operator) for s in network.run()]


# The running example of the AMoS paper: costs .5, 1, 2; selectivities .25, .5, .8; two tuples at 1, 2 and 3


class ExpectedTuples(ScriptedOperator):
    """Counts expected tuples in eighths: one portion is what one input tuple has become."""

    eighths = 8

    @property
    def queued(self) -> int:
        return self.waiting * self.eighths


def running_example(policy: str) -> tuple[list[int], dict[int, list[float]]]:
    """Return the times of answers, and queue lengths by time; a time unit is 1000 ns."""
    network = ScriptedNetwork(policy, {"tuples": 1})
    query = ScriptedQuery("q", "default")
    # Behind selectivity .25 a portion is a quarter of a tuple: .25 x 1; then .125 x 2.
    for number, (cost, eighths) in enumerate([(500, 8), (250, 2), (250, 1)]):
        kind = OperatorKind.OPERATIONAL if number < 2 else OperatorKind.OUTPUT
        operator = ExpectedTuples(number, query, Step("select", cost=cost), kind, not number)
        operator.eighths = eighths
        if query.operators:
            query.operators[-1].downstream.append(operator)
        query.operators.append(operator)
    query.paths = [query.operators]
    network.add_query(query)
    network.now = 1000
    answered: list[int] = []
    queues: dict[int, list[float]] = {}
    network.arrive("q", 2)
    while True:
        queues[network.now] = [operator.queued / 8 for operator in query.operators]
        before = network.answers["q"]
        if network.step() is None:
            return answered, queues
        if network.answers["q"] > before:
            answered.append(network.now)
        if network.now in (2000, 3000):
            network.arrive("q", 2)


def test_fifo_gives_the_first_answer_of_the_running_example_at_2() -> None:
    answered, queues = running_example("fifo")
    assert answered == [2000, 3000, 4000, 5000, 6000, 7000]
    assert [queues[time] for time in (1000, 2000, 3000, 4000)] == [[2, 0, 0], [3, 0, 0], [4, 0, 0], [3, 0, 0]]


def test_mtiq_gives_the_first_answer_of_the_running_example_at_5_5() -> None:
    answered, queues = running_example("mtiq")
    assert answered[0] == 5500
    assert answered[-1] == 7000
    assert len(answered) == 6
    assert [queues[time] for time in (1000, 1500, 2000, 2500, 3000)] == [
        [2, 0, 0],
        [1, 0.25, 0],
        [2, 0.5, 0],
        [1, 0.75, 0],
        [2, 1, 0],
    ]


# fifo


def test_fifo_serves_the_oldest_tuple_of_all_queries() -> None:
    network = ScriptedNetwork("fifo", {"tuples": 1})
    for name in "ab":
        network.add(name, [("select", 1.0)])
    for arrival, name in enumerate("abba"):
        network.now = arrival
        network.arrive(name, 1)
    assert [name for name, _ in chosen(network)] == ["a", "b", "b", "a"]


def test_fifo_carries_a_train_to_the_output_in_one_slice() -> None:
    network = ScriptedNetwork("fifo")
    query = network.add(
        "q",
        {
            "a": Step("select"),
            "b": Step("select"),
            "j": Step("join", inputs=("a", "b")),
            "p": Step("project", inputs=("j",)),
        },
    )
    network.arrive("q", 10, leaf=1)
    network.arrive("q", 10, leaf=0)
    slices = network.run()
    a, b, *above = query.operators
    assert [list(slice_.operators) for slice_ in slices] == [[b, *above], [a, *above]]


def test_fifo_prefers_an_older_tuple_that_is_queued_later() -> None:
    network = ScriptedNetwork("fifo")
    for name in "ab":
        network.add(name, [("join", 1.0)])
    network.now = 50
    network.arrive("a", 1)
    network.now = 60
    network.arrive("b", 1)
    leaf = network.queries["b"].leaves[0]
    leaf.arrivals.appendleft([1, 40])  # at the join's other input, from a stream that lags
    leaf.waiting += 1
    network.policy.grew(leaf, 70)
    assert [name for name, _ in chosen(network)] == ["b", "a"]


def test_fifo_ends_a_slice_ahead_of_an_operator_that_another_core_runs() -> None:
    network = ScriptedNetwork("fifo")
    query = network.add(
        "q", {"a": Step("select"), "b": Step("select"), "u": Step("union", inputs=("a", "b"))}
    )
    network.arrive("q", 1, leaf=0)
    network.arrive("q", 1, leaf=1)
    first, second = network.begin(0), network.begin(1)
    a, b, union, output = query.operators
    assert first is not None
    assert second is not None
    assert [first.operators, second.operators] == [(b, union, output), (a,)]
    network.end(1)
    assert network.begin(1) is None  # its tuple waits for the union, which is claimed
    network.end(0)
    network.run()
    assert network.answers["q"] == 2


class Mark(ScriptedOperator):
    """Has a mark to pass on and no tuple."""

    ready = True
    oldest = None


def test_fifo_takes_a_mark_to_be_as_old_as_its_arrival() -> None:
    network = ScriptedNetwork("fifo")
    for name in "ab":
        network.add(name, [("select", 1.0)])
    marked = ScriptedQuery("m", "default")
    marked.operators = [Mark(99, marked, Step("output"), OperatorKind.OUTPUT, True)]
    network.add_query(marked)
    network.now = 10
    network.arrive("a", 1)
    network.policy.arrived(marked.operators[0], 20)
    network.now = 30
    network.arrive("b", 1)
    order = [network.policy.next(core, 40) for core in range(3)]
    assert [slice_ and slice_.operators[0].query.id for slice_ in order] == ["a", "m", "b"]


def test_the_operators_above_a_split_are_those_of_every_branch_once() -> None:
    network = ScriptedNetwork("fifo")
    query = network.add(
        "q",
        {
            "s": Step("split"),
            "a": Step("project", inputs=("s",)),
            "b": Step("project", inputs=("s",)),
            "u": Step("union", inputs=("a", "b")),
        },
    )
    split, a, b, union, output = query.operators
    ways = onward(query)
    assert ways[split.number] == (split, a, b, union, output)
    assert ways[b.number] == (b, union, output)


# mtiq


def test_mtiq_follows_queues_that_grow() -> None:
    network = ScriptedNetwork("mtiq")
    for name in "abc":
        network.add(name, [("select", 0.001)])
    for name, tuples in [("a", 5), ("b", 3), ("c", 4), ("b", 3)]:
        network.arrive(name, tuples)
    assert [name for name, _ in chosen(network)] == ["b", "a", "c"]


# chain


@pytest.mark.parametrize(
    ("operators", "slopes"),
    [
        # The running example: (1 - .25) / .5, then (.25 - 0) / (.25 x 1 + .125 x 2).
        ([(0.5, 0.25), (1, 0.5), (2, 0.8)], [1.5, 0.5, 0.5]),
        # Flat, then steep: the first operator has the slope of the segment that it leads to.
        ([(1, 1), (1, 0.1)], [0.5, 0.5]),
        # Steep, flat, steep: (1 - .5) / 1, then (.5 - 0) / (.5 x 2 + .5 x 2).
        ([(1, 0.5), (2, 1), (2, 1)], [0.5, 0.25, 0.25]),
        # A join that emits more: one line from the corner after the first to the end at .5 x 2 + .8 x 5.
        ([(1, 0.5), (2, 1.6), (5, 1)], [0.5, 0.1, 0.1]),
        # However little passes: (1 - 1e-18) / 100, then 1 / 100 of what is left each time.
        ([(100, 1e-18), (100, 1e-18), (100, 1)], [0.01, 0.01, 0.01]),
    ],
)
def test_the_lower_envelope(operators: Sequence[tuple[float, float]], slopes: list[float]) -> None:
    some = ScriptedNetwork("chain").add("q", [("select", 1.0)]).operators[0]
    route = tuple(Stage(some, cost, selectivity, 1.0, 1.0) for cost, selectivity in operators)
    assert envelope(route) == pytest.approx(slopes)


def test_the_progress_chart_of_a_route() -> None:
    network = ScriptedNetwork("chain")
    query = network.add(
        "q", [Step("select", 0.5, 10, size=100), Step("project", 1.0, 4, size=40), Step("select", 0.2, 5)]
    )
    (route,) = query.units.routes
    # 10; + .5 x 4; + .5 x 5; + .1 x 100 of the output, after which nothing is left
    expected = [(0, 100), (10, 50), (12, 20), (14.5, 0.1 * 64), (24.5, 0)]
    assert progress_chart(route) == [pytest.approx(point) for point in expected]


def test_the_progress_chart_begins_with_the_output_of_the_source() -> None:
    network = ScriptedNetwork("chain")
    project = Step("project", 1.0, 10, size=40, input_size=200)
    query = network.add("q", [project, Step("select", 0.5, 4, size=40)])
    (route,) = query.units.routes
    # + 4; + .5 x 100 of the output
    assert progress_chart(route) == [pytest.approx(p) for p in [(0, 200), (10, 40), (14, 20), (64, 0)]]
    slopes = list(query.units.slopes.values())
    assert slopes == pytest.approx([160 / 10, 20 / 4, 20 / 50])


def test_chain_runs_the_steepest_first_and_within_a_segment_the_upper_operator() -> None:
    network = ScriptedNetwork("chain", {"tuples": 10})
    # Map frees nothing; together with the filter after it, it is steeper than the other query's start.
    network.add("slow", [Step("select", 0.5, 1000)])
    network.add("fast", [Step("map", 1.0, 10), Step("filter", 0.01, 10)])
    network.arrive("slow", 10)
    network.arrive("fast", 20)
    fast = [("fast", "map"), ("fast", "filter")]
    assert chosen(network)[:5] == [*fast, *fast, ("slow", "select")]


def peak(policy: str) -> int:
    """Return the most tuples that wait while 10 arrive every 200 ns and take 300 ns."""
    network = ScriptedNetwork(policy, {"tuples": 1})
    query = free_output(network, network.add("q", [Step("select", 0.1, 10), Step("match", 1.0, 200)]))
    most, due = 0, 0
    while due < 4000:
        while due <= network.now:
            network.arrive("q", 10)
            due += 200
        most = max(most, sum(operator.waiting for operator in query.operators))
        if network.step() is None:
            network.now = due
    return most


def test_chain_holds_less_than_fifo_under_overload() -> None:
    assert peak("chain") < 0.5 * peak("fifo")


# hr, rb, prb


def two_streams(policy: str, options: dict[str, int]) -> float:
    """Return the mean response time of 2.4: O1, O2, O3 cost 10 each, O4 costs 40, a tuple at O1 and at O4."""
    network = ScriptedNetwork(policy, options)
    steps = {
        "o1": Step("select", cost=10),
        "o4": Step("select", cost=40),
        "o2": Step("union", cost=10, inputs=("o1", "o4")),
        "o3": Step("project", cost=10, inputs=("o2",)),
    }
    free_output(network, network.add("q", steps))
    network.arrive("q", 1, leaf=1)
    network.arrive("q", 1, leaf=0)
    response = 0
    while network.begin() is not None:
        response += network.end().response
    assert network.now == 90
    return response / network.answers["q"]


@pytest.mark.parametrize("policy", ["rb", "prb"])
def test_the_path_that_yields_early_goes_first(policy: str) -> None:
    assert two_streams(policy, {"tuples": 1}) == 60
    # Equally old tuples: fifo takes the operator nearest to the output, here O4's path.
    assert two_streams("fifo", {"tuples": 1}) == 75


def three_operators(tuples: int) -> tuple[PreemptiveRateBased, list[ScriptedOperator]]:
    network = ScriptedNetwork("prb", {"tuples": tuples})
    steps = [Step("select", 0.5, 4), Step("select", 0.4, 6), Step("project", 1.0, 2)]
    query = free_output(network, network.add("q", steps))
    assert isinstance(network.policy, PreemptiveRateBased)
    return network.policy, query.operators


def test_formula_1_with_and_without_work_done() -> None:
    policy, (first, second, third, _) = three_operators(tuples=1)
    # .5 x .4 x 1 / (4 + 6 x .5 + 2 x .2); .4 x 1 / (6 + 2 x .4); 1 / 2
    rates = [policy.priority(operator) for operator in (first, second, third)]
    assert rates == pytest.approx([0.2 / 7.4, 0.4 / 6.8, 0.5])
    first.progress = 3
    assert policy.priority(first) == pytest.approx(0.2 / 4.4)


def test_a_partly_done_train_counts_with_its_remaining_cost() -> None:
    policy, (first, *_) = three_operators(tuples=64)
    first.put(30, 0)
    first.progress = 40  # 10 of 40 tuples are done: 3 of 4 per tuple are left
    assert policy.priority(first) == pytest.approx(0.2 / (3 + 3.4))


@pytest.mark.parametrize("tuples", [1, 64])
def test_operators_above_outrank_those_below_whatever_work_was_done(tuples: int) -> None:
    random = Random(1)
    for _ in range(50):
        network = ScriptedNetwork("prb", {"tuples": tuples})
        steps = [Step("select", random.uniform(0.01, 2), random.uniform(1, 300)) for _ in range(5)]
        query = network.add("q", steps)
        for operator in query.operators[:-1]:
            operator.put(10, 0)
            operator.progress = random.choice([0, 1, 50, 10_000])
        policy = network.policy
        assert isinstance(policy, PreemptiveRateBased)
        rates = [policy.priority(operator) for operator in query.operators]
        assert rates == sorted(set(rates))


def test_prb_preempts_only_for_a_higher_rate_than_the_remaining_work() -> None:
    network = ScriptedNetwork("prb", {"tuples": 1})
    for name, cost in [("costly", 100), ("cheap", 50)]:
        free_output(network, network.add(name, [Step("select", cost=cost)]))
    policy, costly = network.policy, network.queries["costly"].leaves[0]
    cheap = network.queries["cheap"].leaves[0]
    assert not network.arrive("costly", 1)  # nothing runs
    running = network.begin()
    assert running is not None
    # After 49 units 51 are left: 1 / 51 < 1 / 50. After 51 units 49 are left.
    assert not policy.arrived(cheap, 51)
    assert policy.arrived(cheap, 49)
    # The driver preempts it: the new tuple goes first, and the rest of the other follows.
    cheap.put(1, 49)
    costly.progress = 49
    policy.finished(running, Report(0, 0, 49))
    order = [policy.next(0, 49), policy.next(0, 99)]
    assert [slice_ and slice_.operators for slice_ in order] == [(cheap,), (costly,)]


def test_prb_is_not_preempted_by_its_own_output() -> None:
    network = ScriptedNetwork("prb")
    query = network.add("q", [Step("select", 1.0, 1000), Step("project", 1.0, 1)])
    network.arrive("q", 1)
    network.begin()
    assert not network.policy.arrived(query.operators[1], 1)


def test_hr_takes_whole_trains_and_rb_a_few_tuples() -> None:
    lengths = {}
    for policy in ("hr", "rb"):
        network = ScriptedNetwork(policy)
        network.add("q", [("select", 1.0)])
        network.arrive("q", 128)
        lengths[policy] = len(network.run())
    assert lengths == {"hr": 2, "rb": 4}


def test_rates_follow_changed_metrics() -> None:
    network = ScriptedNetwork("rb")
    for name in "ab":
        network.add(name, [Step("select", 1.0, 100)])
        network.arrive(name, 1)
    network.measure(network.queries["a"].leaves[0], Statistics(cost_per_tuple=500.0, tuples=400))
    assert chosen(network)[0] == ("b", "select")
