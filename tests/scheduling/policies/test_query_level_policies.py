"""Policies for several cores: the common contract, and each policy by examples."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from mavstream_server.scheduling.mechanisms.lottery import Lottery, TicketHolder
from mavstream_server.scheduling.statistics import Statistics
from mavstream_server.scheduling.view import OperatorKind, Slice
from mavstream_server.testing import ScriptedNetwork, ScriptedOperator, ScriptedQuery, Step

SEVERAL_CORES = ("abd", "mbd", "ml", "mol", "morr", "mprr", "mrr", "pct", "pct_s")
WHOLE_QUERIES = ("mbd", "ml", "mrr", "pct", "pct_s")
CHAIN = [("select", 0.5), ("join", 1.0), ("project", 1.0)]

every_policy = pytest.mark.parametrize("policy", SEVERAL_CORES)


def queries_that_ran(slice_: Slice | None) -> str:
    assert slice_ is not None
    return slice_.operators[0].query.id


def flooded(network: ScriptedNetwork) -> None:
    """Let a tuple arrive for every query that has none and does not run."""
    for query in network.queries.values():
        if not query.leaves[0].waiting and not query.leaves[0].running:
            network.arrive(query.id, 1)


def shares_of_turns(network: ScriptedNetwork, slices: int) -> dict[str, float]:
    found: Counter[str] = Counter()
    for _ in range(slices):
        flooded(network)
        found[queries_that_ran(network.step())] += 1
    return {id_: count / slices for id_, count in found.items()}


def sharing(network: ScriptedNetwork, id_: str, below: ScriptedOperator) -> ScriptedQuery:
    """Admit a query that reads the output of an operator of another one."""
    query = ScriptedQuery(id_, below.query.class_name)
    number = 100_000 + len(network.answers)
    output = ScriptedOperator(number, query, Step("output"), OperatorKind.OUTPUT, leaf=False)
    below.downstream.append(output)
    query.operators = [below, output]
    query.paths = [[below, output]]
    return network.add_query(query)


# The common contract


@every_policy
def test_four_cores_at_once_share_no_operator_and_lose_nothing(policy: str) -> None:
    network = ScriptedNetwork(policy)
    for number in range(12):
        network.add(f"q{number}", CHAIN, f"class {number % 5}")
    for turn in range(100):
        for id_ in network.queries:
            network.arrive(id_, 2)
        begun = [network.begin(core) for core in range(4)]  # asserts that no operator runs twice
        assert None not in begun
        for core in ((3, 0, 2, 1), (1, 3, 0, 2), (0, 1, 2, 3))[turn % 3]:
            network.end(core)
    network.run()
    assert set(network.answers.values()) == {100}


class Chaos:
    """Makes random changes on three cores, and checks that nothing runs twice and nothing is lost."""

    def __init__(self, policy: str, seed: int) -> None:
        self.random = Random(seed)
        self.network = ScriptedNetwork(policy, seed=seed)
        self.running: set[int] = set()
        self.made = 0

    def add(self) -> None:
        self.made += 1
        self.network.add(f"q{self.made}", CHAIN, f"class {self.random.randrange(3)}")

    def any_query(self) -> str:
        return self.random.choice(sorted(self.network.queries))

    def arrive(self) -> None:
        self.network.arrive(self.any_query(), self.random.randint(1, 5))

    def begin(self) -> None:
        idle = sorted({0, 1, 2} - self.running)
        if idle and self.network.begin(core := self.random.choice(idle)) is not None:
            self.running.add(core)

    def end(self) -> None:
        if self.running:
            core = self.random.choice(sorted(self.running))
            self.running.discard(core)
            self.network.end(core)

    def remove(self) -> None:
        if len(self.network.queries) > 3:
            self.network.remove(self.any_query())

    def reclass(self) -> None:
        self.network.reclass(self.any_query(), f"class {self.random.randrange(4)}")

    def set_priority(self) -> None:
        self.network.set_priority(f"class {self.random.randrange(3)}", self.random.randint(1, 9))

    def measure(self) -> None:
        operator = self.random.choice(self.network.queries[self.any_query()].operators)
        metrics = Statistics(cost_per_tuple=self.random.choice([50, 100, 900]), selectivity=0.5, tuples=200)
        self.network.measure(operator, metrics)

    def go(self, steps: int) -> None:
        for _ in range(4):
            self.add()
        often = [self.arrive] * 6 + [self.begin] * 6 + [self.end] * 6
        seldom = [self.add, self.remove, self.reclass, self.set_priority, self.measure]
        for _ in range(steps):
            self.random.choice(often + seldom)()
            if not self.running and self.network.waiting:
                self.begin()
                assert self.running, "it idles while something is ready"
        while self.running:
            self.end()
        self.network.run()
        assert self.network.waiting == 0


@every_policy
@pytest.mark.parametrize("seed", range(8))
def test_random_changes_at_any_time_lose_and_repeat_nothing(policy: str, seed: int) -> None:
    Chaos(policy, seed).go(400)


@pytest.mark.parametrize("policy", SEVERAL_CORES[1:])  # classes, and so abd, share nothing among them
def test_shared_operators_run_on_one_core_at_a_time(policy: str) -> None:
    network = ScriptedNetwork(policy)
    for id_ in "ab":
        network.add(id_, [("select", 1.0)])
    for number in range(3):
        sharing(network, f"shared {number}", network.queries["a"].operators[0])
    for turn in range(50):
        for id_ in "ab":
            network.arrive(id_, 1)
        begun = [core for core in range(3) if network.begin(core) is not None]
        for core in begun if turn % 2 else reversed(begun):
            network.end(core)
    network.run()
    assert set(network.answers.values()) == {50}
    shared = network.queries.pop("shared 0")
    shared.operators[0].downstream.remove(shared.operators[1])
    network.policy.retire(shared)
    network.arrive("a", 1)
    network.run()
    assert network.answers["a"] == network.answers["shared 1"] == 51


@every_policy
def test_a_slice_reads_as_few_operators_with_many_queries_as_with_few(policy: str) -> None:
    looks = {}
    for queries in (25, 2500):
        network = ScriptedNetwork(policy)
        for number in range(queries):
            network.add(f"q{number}", CHAIN)
            network.arrive(f"q{number}", 4)
        operators = [operator for query in network.queries.values() for operator in query.operators]
        for operator in operators:
            operator.looks = 0
        slices = [network.step() for _ in range(20)]
        assert None not in slices
        looks[queries] = sum(operator.looks for operator in operators)
    assert looks[2500] <= looks[25] * 1.5


@pytest.mark.parametrize("policy", WHOLE_QUERIES)
def test_a_query_runs_as_a_whole_from_its_leaves_to_its_output(policy: str) -> None:
    network = ScriptedNetwork(policy)
    query = network.add("q", CHAIN)
    network.arrive("q", 100)
    slices = network.run()
    assert [slice_.operators for slice_ in slices] == [tuple(query.operators)]
    assert network.answers["q"] == 50


@every_policy
def test_a_policy_that_takes_over_gets_the_end_of_slices_that_it_did_not_begin(policy: str) -> None:
    network = ScriptedNetwork("rr")
    network.add("q", [("select", 1.0)])
    network.arrive("q", 10)
    network.begin(0)
    network.switch(policy)
    network.end(0)
    network.run()
    assert network.answers["q"] == 10


# Round robin


def test_mrr_gives_every_query_a_turn_whatever_its_class() -> None:
    network = ScriptedNetwork("mrr")
    network.priorities.update({"H": 9, "L": 1})
    for id_ in "abc":
        network.add(id_, [Step("select", 0.0)], "H" if id_ == "a" else "L")
    assert shares_of_turns(network, 9) == pytest.approx(dict.fromkeys("abc", 1 / 3))


def test_morr_runs_operators_of_one_query_on_several_cores() -> None:
    network = ScriptedNetwork("morr")
    query = network.add("q", [("select", 1.0), ("project", 1.0)])
    network.arrive("q", 10)
    network.step()
    network.arrive("q", 10)
    begun = [network.begin(core) for core in range(2)]
    assert [slice_.operators for slice_ in begun if slice_] == [(query.operators[1],), (query.operators[0],)]


# Proportional round robin


def parts_run(of: str) -> dict[str, list[int | None]]:
    """Return how many tuples each class's leaf is allowed in the first nine turns, of 600 that wait."""
    network = ScriptedNetwork("mprr", {"of": of})
    network.priorities.update({"H": 3, "M": 2, "L": 1})
    allowed: dict[str, list[int | None]] = {}
    for name in "HML":
        network.add(name, [Step("select", 0.0)], name)
        network.arrive(name, 600)
        allowed[name] = []
    for _ in range(9):
        slice_ = network.step()
        assert slice_ is not None
        allowed[queries_that_ran(slice_)].append(slice_.tuples)
    return allowed


def test_mprr_works_on_a_part_of_the_queue_by_the_sum_of_priorities() -> None:
    # 3/6, 2/6 and 1/6 of what waits: 600, 300, 150; 600, 400, 266.67; 600, 500, 416.67, rounded up.
    assert parts_run("sum") == {"H": [300, 150, 75], "M": [200, 134, 89], "L": [100, 84, 70]}


def test_mprr_works_on_a_part_of_the_queue_by_the_largest_priority() -> None:
    # H works on all it has at once; 2/3 and 1/3 of what waits: 600, 200, 66, 22; 600, 400, 266, 177.
    assert parts_run("largest") == {"H": [600], "M": [400, 134, 44, 15], "L": [200, 134, 89, 59]}


def test_mprr_bounds_every_leaf_and_no_other_operator() -> None:
    network = ScriptedNetwork("mprr")
    network.priorities.update({"H": 1, "L": 1})
    network.add("other", [Step("select", 0.0)], "L")
    steps = {"left": Step("select", 1.0), "right": Step("select", 1.0)}
    network.add("q", {**steps, "join": Step("join", 3.0, inputs=("left", "right"))}, "H")
    network.arrive("q", 100, leaf=0)
    network.arrive("q", 10, leaf=1)
    slices = [network.step() for _ in range(3)]
    assert [slice_.tuples for slice_ in slices if slice_] == [50, 5, None]
    assert network.answers["q"] == 3 * 55


# Lotteries


def test_the_lottery_draws_by_tickets() -> None:
    lottery: Lottery[str] = Lottery()
    tickets = {"a": 1, "b": 3, "c": 1000, "d": 5000, "e": 3996}
    for name, count in tickets.items():
        lottery.join(TicketHolder(name, count))
    random = Random(7)
    found = Counter(holder.item for _ in range(200_000) if (holder := lottery.draw(random)))
    for name, count in tickets.items():
        expected = 200_000 * count / 10_000
        assert abs(found[name] - expected) < 5 * expected**0.5  # five standard deviations


def test_a_removed_ticket_is_not_drawn() -> None:
    lottery: Lottery[int] = Lottery()
    holders = [TicketHolder(number, 1 + number % 7) for number in range(100)]
    for holder in holders:
        lottery.join(holder)
    random = Random(1)
    left = set()
    while (drawn := lottery.draw(random)) is not None:
        lottery.leave(drawn)
        lottery.leave(drawn)  # once more changes nothing
        assert drawn.item not in left
        left.add(drawn.item)
    assert left == set(range(100))


def test_ml_gives_turns_by_class_priority_and_cost() -> None:
    network = ScriptedNetwork("ml", seed=5)
    network.priorities.update({"H": 6, "L": 2})
    for id_, (class_name, cost) in {"a": ("H", 100), "b": ("H", 300), "c": ("L", 7)}.items():
        network.add(id_, [Step("select", 0.0, cost)], class_name)
    # 6 * 1/4, 6 * 3/4 and 2, of 8.
    expected = {"a": 1.5 / 8, "b": 4.5 / 8, "c": 2 / 8}
    assert shares_of_turns(network, 20_000) == pytest.approx(expected, rel=0.05)
    network.set_priority("L", 10)
    assert shares_of_turns(network, 20_000)["c"] == pytest.approx(10 / 16, rel=0.05)
    network.reclass("c", "H")
    shares_of_turns(network, 3)  # a round
    # By cost alone, in one class: 100, 300 and 7 of 407.
    assert shares_of_turns(network, 20_000)["c"] == pytest.approx(7 / 407, rel=0.2)


def test_mol_divides_a_class_among_its_operators_by_load() -> None:
    network = ScriptedNetwork("mol", seed=5)
    # 100 ns for the leaf; half of the tuples reach the projection, 400 ns each; nothing reaches the output.
    query = network.add("q", [Step("select", 0.5, 100), Step("project", 0.0, 400)])
    found: Counter[str] = Counter()
    for _ in range(20_000):
        for operator in query.operators[:2]:
            if not operator.waiting:
                operator.put(2, 0)
                network.policy.arrived(operator, 0)
        slice_ = network.step()
        assert slice_ is not None
        found[slice_.operators[0].operator] += 1
    assert found["project"] / found["select"] == pytest.approx(200 / 100, rel=0.05)


# Threads


def threads(policy: str, cores: int, classes: int, queries: int = 4) -> list[str]:
    """Return the classes that run at once on a number of cores, all of them overloaded."""
    network = ScriptedNetwork(policy)
    for number in range(classes):
        network.priorities[f"c{number}"] = classes - number
        for query in range(queries):
            network.add(f"{number}/{query}", [Step("select", 0.0)], f"c{number}")
            network.arrive(f"{number}/{query}", 1000)
    network.begin(cores - 1)  # a policy learns the number of cores from the requests
    network.end(cores - 1)
    begun = [network.begin(core) for core in range(cores)]
    return sorted(slice_.operators[0].query.class_name for slice_ in begun if slice_)


@pytest.mark.parametrize(
    ("policy", "cores", "classes", "running"),
    [
        ("pct", 3, 3, ["c0", "c1", "c2"]),
        ("pct", 6, 3, ["c0", "c1", "c2"]),  # three cores idle
        ("pct", 2, 3, ["c1", "c2"]),  # c0 has had its turn
        ("pct_s", 3, 3, ["c0", "c1", "c2"]),
        ("pct_s", 5, 3, ["c0", "c0", "c1", "c1", "c2"]),  # the most important are split
        ("pct_s", 6, 3, ["c0", "c0", "c1", "c1", "c2", "c2"]),
        ("pct_s", 9, 3, ["c0", "c0", "c1", "c1", "c2", "c2"]),  # and three cores idle
    ],
)
def test_threads_of_classes_on_cores(policy: str, cores: int, classes: int, running: list[str]) -> None:
    assert threads(policy, cores, classes) == running


def test_pct_divides_time_evenly_among_classes_whatever_their_queries() -> None:
    network = ScriptedNetwork("pct")
    network.add("light", [Step("select", 0.0, 100)], "light")
    for query in range(3):
        network.add(f"heavy{query}", [Step("select", 0.0, 700)], "heavy")
    for _ in range(2000):
        flooded(network)
        network.step()
    assert network.busy["light"] == pytest.approx(network.busy["heavy"], rel=0.01)


def test_a_thread_without_work_does_not_save_up_time() -> None:
    network = ScriptedNetwork("pct")
    for name in "ab":
        network.add(name, [Step("select", 0.0, 100)], name)
    for _ in range(500):
        network.arrive("a", 1)
        network.step()
    assert shares_of_turns(network, 10) == {"a": 0.5, "b": 0.5}


def test_pct_s_follows_new_priorities() -> None:
    network = ScriptedNetwork("pct_s")
    for name, priority in {"a": 2, "b": 1}.items():
        network.priorities[name] = priority
        for query in range(2):
            network.add(f"{name}{query}", [Step("select", 0.0)], name)
    seen = []
    for _ in range(2):
        flooded(network)
        begun = [network.begin(core) for core in (2, 1, 0)]
        seen.append(sorted(slice_.operators[0].query.class_name for slice_ in begun if slice_))
        for core in range(3):
            network.end(core)
        network.set_priority("b", 3)
    assert seen == [["a", "a", "b"], ["a", "b", "b"]]
