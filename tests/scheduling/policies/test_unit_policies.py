"""Policies that run paths, segments and simplified segments: capacities by hand, and the order of units."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

from mavstream_server.scheduling.mechanisms.segments import AnswerMemory, Unit
from mavstream_server.scheduling.registry import InvalidPolicy
from mavstream_server.scheduling.statistics import Statistics
from mavstream_server.scheduling.view import OperatorView
from mavstream_server.testing import ScriptedNetwork, ScriptedQuery, Step

# S1 -> P1 -> J <- P2 <- S2, J -> S3, with an output on top that costs 100
TWO_STREAMS = {
    "s1": Step("s1", 0.70, 1700, size=100),
    "p1": Step("p1", 1.0, 2100, ("s1",), size=70),
    "s2": Step("s2", 0.26, 3900, size=100),
    "p2": Step("p2", 1.0, 1300, ("s2",), size=70),
    "j": Step("j", 0.56, 12160, ("p1", "p2"), size=140),
    "s3": Step("s3", 0.70, 2000, ("j",), size=140),
}
UNIT_POLICIES = ["path_capacity", "segment", "simplified_segment"]


def two_streams(policy: str = "segment", options: dict[str, Any] | None = None) -> ScriptedNetwork:
    network = ScriptedNetwork(policy, options)
    network.add("q", TWO_STREAMS)
    return network


def names(operators: Iterable[OperatorView]) -> str:
    return " ".join(operator.operator for operator in operators)


def by_name(units: Iterable[Unit]) -> dict[str, Unit]:
    return {names(unit.operators): unit for unit in units}


# Units


def test_processing_capacities_of_paths() -> None:
    units = by_name(two_streams().queries["q"].units.paths)
    # 1700 + .7 x 2100 + .7 x 12160 + .7 x .56 x 2000 + .7 x .56 x .7 x 100, and likewise from S2
    assert {name: 1 / unit.processing for name, unit in units.items()} == pytest.approx(
        {"s1 p1 j s3 output": 12493.44, "s2 p2 j s3 output": 7700.992}
    )


def test_segments_end_where_memory_is_not_freed_faster() -> None:
    units = by_name(two_streams().queries["q"].units.segments())
    # Alone: S1 30 / 1700 > P1 30 / 2100; J (70 - .56 x 140) / 12160 is negative, a segment alone, as is S3
    # with the output that holds its answers; S2 74 / 3900 < P2 30 / 1300.
    assert {name: unit.release for name, unit in units.items()} == pytest.approx(
        {
            "s1": 30 / 1700,
            "p1": 30 / 2100,
            "j": -8.4 / 12160,
            "s3 output": (140 - 0.7 * 140) / (2000 + 0.7 * 100),
            "s2 p2": (100 - 0.26 * 70) / (3900 + 0.26 * 1300),
        }
    )


def test_an_answer_that_counts_as_freed_holds_no_memory() -> None:
    units = by_name(two_streams().queries["q"].units.segments(AnswerMemory.FREED))
    # The output alone frees 140 / 100, more than S3 with 42 / 2000: one segment, which frees all its input.
    assert units["s3 output"].release == pytest.approx(140 / (2000 + 0.7 * 100))
    strict = by_name(two_streams().queries["q"].units.simplified_segments(0.9, AnswerMemory.FREED))
    time = 2100 + 12160 + 0.56 * 2000 + 0.56 * 0.7 * 100
    assert strict["p1 j s3 output"].release == pytest.approx(100 / time)


@pytest.mark.parametrize(("answers", "first"), [("held", "filter"), ("freed", "copy")])
@pytest.mark.parametrize("policy", ["segment", "simplified_segment"])
def test_whether_answers_count_as_held_is_an_option(policy: str, answers: str, first: str) -> None:
    network = ScriptedNetwork(policy, {"answers": answers})
    network.add("filter", [Step("filter", 0.5, 100)])  # with the output 64 x .5 / 150 held, 64 / 150 freed
    network.add("copy", [Step("copy", 1.0, 10)])  # 0 held, 64 / 110 freed
    network.arrive("filter", 10)
    network.arrive("copy", 10)
    assert network.run()[0].operators[0].operator == first


def test_a_leaf_frees_the_difference_to_the_output_size_of_its_source() -> None:
    """P makes 40 bytes of 200, and S passes half of its 100-byte tuples."""
    network = ScriptedNetwork("segment")
    shrinks = network.add("p", [Step("p", 1.0, 1000, size=40, input_size=200), Step("s", 0.5, 500, size=40)])
    passes = network.add("s", [Step("s", 0.5, 1000, size=100, input_size=100)])
    # Alone: P 160 / 1000 > S 20 / 500
    assert {name: unit.release for name, unit in by_name(shrinks.units.segments()).items()} == pytest.approx(
        {"p": 160 / 1000, "s output": (40 - 0.5 * 40) / (500 + 0.5 * 100)}
    )
    assert by_name(passes.units.segments())["s output"].release == pytest.approx(50 / (1000 + 0.5 * 100))
    # P is ahead of S at the other leaf; without the input size it would be behind it.
    network.arrive("s", 10)
    network.arrive("p", 10)
    assert [names(slice_.operators) for slice_ in network.run()] == ["p", "s output", "s output"]


def test_simplified_segments_use_the_output_size_of_the_source() -> None:
    network = ScriptedNetwork("simplified_segment")
    query = network.add("q", [Step("p", 1.0, 1000, size=40, input_size=200), Step("s", 0.5, 500, size=40)])
    # P frees 160 / 1000; S with 20 / 500 falls below .9 of that, and begins the second segment.
    assert {name: unit.release for name, unit in by_name(query.units.simplified_segments(0.9)).items()} == (
        pytest.approx({"p": 160 / 1000, "s output": 20 / 550})
    )
    grows = network.add("g", [Step("g", 1.0, 1000, size=200, input_size=40), Step("s", 0.1, 500, size=200)])
    (g, s) = grows.units.simplified_segments(0.9)
    assert (names(g.operators), g.release) == ("g", pytest.approx(-160 / 1000)), "a leaf can need memory"
    assert s.release == pytest.approx((200 - 0.1 * 200) / (500 + 0.1 * 100))


def test_simplified_segments_are_two_to_a_path_and_pruned() -> None:
    units = two_streams().queries["q"].units
    # P1 / S1 = .81. J S3 output, the second segment of the other path, is part of the longer one.
    strict, loose = by_name(units.simplified_segments(0.9)), by_name(units.simplified_segments(0.8))
    assert list(strict) == ["s1", "p1 j s3 output", "s2 p2"]
    assert list(loose) == ["s1 p1", "j s3 output", "s2 p2"]
    time = 2100 + 12160 + 0.56 * 2000 + 0.56 * 0.7 * 100
    assert strict["p1 j s3 output"].release == pytest.approx((100 - 0.56 * 0.7 * 140) / time)


def test_segments_of_the_first_example_tree_and_its_alternative() -> None:
    project, select = Step("project", 1.0, 20, size=40), Step("select", 0.1, 4, size=100)
    join = Step("join", 0.3, 100, size=80)
    network = ScriptedNetwork("segment")
    first = network.add("first", [project._replace(input_size=100), select._replace(size=40), join])
    other = network.add("other", [select._replace(input_size=100), project, join])
    # 60 / 20 < 36 / 4 > 16 / 100; 90 / 4 > 60 / 20 > 16 / 100
    assert list(by_name(first.units.segments())) == ["project select", "join output"]
    assert list(by_name(other.units.segments())) == ["select", "project", "join output"]


def test_a_longer_segment_replaces_the_shorter_ones_inside_it() -> None:
    network = ScriptedNetwork("segment")
    query = network.add(
        "q",
        {
            "a": Step("a", 0.1, 1),  # frees much: the union begins a segment of its own
            "b": Step("b", 0.9, 1000),  # frees little: the union continues its segment
            "u": Step("u", 1.0, 100, ("a", "b"), size=48),
        },
    )
    assert list(by_name(query.units.segments())) == ["a", "b u output"]


def test_every_branch_of_a_split_is_in_a_unit() -> None:
    network = ScriptedNetwork("path_capacity")
    query = network.add(
        "q",
        {
            "s": Step("split", 1.0, 10),
            "a": Step("a", 1.0, 20, ("s",)),
            "b": Step("b", 1.0, 30, ("s",)),
            "u": Step("u", 1.0, 40, ("a", "b")),
        },
    )
    units = by_name(query.units.paths)
    # Half of the tuples go to each branch: 10 + .5 x (20 + 40 + 100); then 30 + 40 + 100
    assert {name: 1 / unit.processing for name, unit in units.items()} == pytest.approx(
        {"split a u output": 90, "b u output": 170}
    )


# The order of units


@pytest.mark.parametrize("policy", UNIT_POLICIES)
def test_tuples_do_not_wait_for_another_input(policy: str) -> None:
    network = two_streams(policy)
    network.arrive("q", 1000, leaf=1)  # S1, with whose path J's segment may begin, never has tuples
    network.run()
    assert network.waiting == 0
    assert network.answers["q"] > 0


def test_path_capacity_runs_the_fastest_path_leaf_to_root() -> None:
    network = two_streams("path_capacity")
    network.arrive("q", 100, leaf=0)
    network.arrive("q", 100, leaf=1)
    assert [names(s.operators) for s in network.run()] == ["s2 p2 j s3 output", "s1 p1 j s3 output"]


def test_segments_run_in_order_of_the_memory_that_they_free() -> None:
    network = two_streams("segment")
    network.arrive("q", 100, leaf=0)
    network.arrive("q", 100, leaf=1)
    ran = [names(slice_.operators) for slice_ in network.run()]
    # Bytes per 1000 ns: S2 P2 19.3, S1 17.6, P1 14.3, S3 and output 20.3 once J (-.7) has made something
    assert ran == ["s2 p2", "s1", "p1", "j", "s3 output"]


def test_simplified_segments_take_gamma_as_an_option() -> None:
    network = two_streams("simplified_segment", {"gamma": 0.8})
    network.arrive("q", 100)
    assert [names(slice_.operators) for slice_ in network.run()] == ["s1 p1", "j s3 output"]
    with pytest.raises(InvalidPolicy, match="less than or equal to 1"):
        ScriptedNetwork("simplified_segment", {"gamma": 1.5})


def test_changed_metrics_make_other_units_while_one_runs() -> None:
    network = two_streams("segment")
    network.arrive("q", 100)
    (s1,) = (operator for operator in network.queries["q"].operators if operator.operator == "s1")
    network.begin()
    # S1 frees less now than P1 does: 10 / 1700 < 30 / 2100, so they are one segment.
    metrics = Statistics(cost_per_tuple=1700, selectivity=0.9, tuple_size=100, tuples=400, input_size=100)
    network.measure(s1, metrics)
    assert network.begin(1) is None  # S1 is still claimed
    network.end()
    network.arrive("q", 100)
    assert names(network.run()[0].operators) == "s1 p1"
    assert network.waiting == 0


# tau, quantum


def fast_and_slow(options: dict[str, Any]) -> ScriptedNetwork:
    network = ScriptedNetwork("path_capacity", options)
    network.add("fast", [Step("select", cost=10)])
    network.add("slow", [Step("select", cost=1000)])
    return network


def order(network: ScriptedNetwork) -> list[str]:
    return [slice_.operators[0].query.id for slice_ in network.run()]


def test_up_to_tau_tuples_wait_until_nothing_else_is_ready() -> None:
    network = fast_and_slow({"tau": 5})
    network.arrive("fast", 5)
    network.arrive("slow", 6)
    assert order(network) == ["slow", "fast"]
    assert network.waiting == 0


def test_more_than_tau_tuples_count_as_soon_as_they_wait() -> None:
    network = fast_and_slow({"tau": 5})
    network.arrive("fast", 5)
    network.arrive("slow", 6)
    network.arrive("fast", 1)
    assert order(network) == ["fast", "slow"]


def test_up_to_tau_tuples_are_drained_after_a_time_under_load() -> None:
    network = fast_and_slow({"tau": 5, "drain_ms": 1})
    network.arrive("fast", 5)
    turns = []
    for _ in range(15):  # a turn of 100 tuples takes 110 000 ns
        network.arrive("slow", 100)
        slice_ = network.step()
        turns.append(slice_ and slice_.operators[0].query.id)
    assert turns == ["slow"] * 10 + ["fast"] + ["slow"] * 4


def test_a_quantum_bounds_the_first_operator_and_those_above_run_until_empty() -> None:
    network = ScriptedNetwork("path_capacity", {"quantum_us": 1})
    query = network.add("q", [Step("leaf", cost=100), Step("join", 2.0, 5000), Step("project")])
    network.arrive("q", 25)
    left = []
    while (slice_ := network.step()) is not None:
        left.append((names(slice_.operators), query.operators[0].waiting))
        if len(left) % 2 == 0:
            assert network.waiting == query.operators[0].waiting
    above = "join project output"
    assert left == [("leaf", 15), (above, 15), ("leaf", 5), (above, 5), ("leaf", 0), (above, 0)]
    assert network.answers["q"] == 50


# Several cores


def test_units_that_share_an_operator_do_not_run_at_the_same_time() -> None:
    network = two_streams("path_capacity")
    network.add("other", [Step("slow", cost=1_000_000)])
    for id_, leaf in [("q", 0), ("q", 1), ("other", 0)]:
        network.arrive(id_, 10, leaf)
    slices = [network.begin(core) for core in range(4)]
    # The other path of q shares J: a slower query goes first. Its unclaimed part runs only on an idle core.
    ran = [slice_ and names(slice_.operators) for slice_ in slices]
    assert ran == ["s2 p2 j s3 output", "slow output", "s1 p1", None]
    for core in range(3):
        network.end(core)
    network.run()
    assert network.waiting == 0


@pytest.mark.parametrize("policy", [*UNIT_POLICIES, "fifo"])
def test_a_slice_that_another_policy_began_is_not_run_again(policy: str) -> None:
    network = two_streams("path_capacity")
    network.arrive("q", 10, leaf=1)
    network.begin(0)  # S2, P2, J, S3 and the output
    network.switch(policy)
    network.arrive("q", 10, leaf=0)
    slice_ = network.begin(1)
    assert slice_ is not None
    assert names(slice_.operators) in ("s1", "s1 p1")
    network.end(0)
    network.end(1)
    network.run()
    assert network.waiting == 0


def idle_cores_have_nothing_to_do(network: ScriptedNetwork) -> None:
    waiting = [
        o for query in network.queries.values() for o in query.operators if o.waiting and not o.running
    ]
    assert not waiting


def random_change(network: ScriptedNetwork, random: Random) -> None:
    """Make a random change to a random query."""
    query: ScriptedQuery = random.choice(list(network.queries.values()))
    match random.randrange(12):
        case 0:
            network.reclass(query.id, random.choice("xyz"))
        case 1:
            operator = random.choice(query.operators)
            metrics = Statistics(
                cost_per_tuple=random.choice([5, 50, 500]), selectivity=random.choice([0.2, 1.0]), tuples=400
            )
            network.measure(operator, metrics)
        case 2:
            network.remove(query.id)
            network.add(f"q{random.randrange(10**9)}", TWO_STREAMS)
        case 3:
            network.switch(network.policy.name, network.policy.options.model_dump())
        case _:
            network.arrive(query.id, random.randrange(1, 20), random.randrange(len(query.leaves)))


@pytest.mark.parametrize("options", [{}, {"tau": 10}, {"quantum_us": 2}, {"tau": 3, "quantum_us": 1}])
@pytest.mark.parametrize("policy", [*UNIT_POLICIES, "fifo", "prb"])
def test_three_cores_lose_nothing_and_never_idle_under_random_changes(
    policy: str, options: dict[str, Any]
) -> None:
    if policy not in UNIT_POLICIES:
        options = {"tuples": 2} if options else {}
    random = Random(7)
    network = ScriptedNetwork(policy, options)
    for number in range(3):
        network.add(f"t{number}", TWO_STREAMS)
        network.add(f"c{number}", [("select", 0.5), ("join", 1.5), ("project", 1.0)])
    busy: set[int] = set()
    for _ in range(3000):
        core = random.randrange(4)
        if core == 3:
            random_change(network, random)
        elif core in busy:
            network.end(core)
            busy.discard(core)
        elif network.begin(core) is not None:
            busy.add(core)
        else:
            idle_cores_have_nothing_to_do(network)
    for core in busy:
        network.end(core)
    network.run()
    assert network.waiting == 0
