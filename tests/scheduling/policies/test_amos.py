"""The adaptive choice between policies (AMoS)."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

from mavstream_protocol.specification import Metric, Quantifier, Requirement, Specification
from mavstream_server.scheduling.mechanisms.learning.interval import Interval
from mavstream_server.scheduling.mechanisms.learning.learner import PrintedLearner, chances, spin
from mavstream_server.scheduling.mechanisms.learning.scoring import Synopsis, policy_score, statistic_score
from mavstream_server.scheduling.mechanisms.learning.sharp_learner import SharpLearner
from mavstream_server.scheduling.policies.amos import AdaptiveSelection
from mavstream_server.scheduling.registry import InvalidPolicy, check_options
from mavstream_server.scheduling.view import OperatorKind, Report
from mavstream_server.testing import ScriptedNetwork, ScriptedOperator, ScriptedQuery, Step

US = 1000
MS = 1000 * US
QUEUE = Specification.of(("queued_tuples", "minimise", 1))
DELAY = Specification.of(("delay", "minimise", 1))
TABLE_3 = Specification.of(("queued_tuples", "minimise", 75), ("delay", "minimise", 25))


def amos_of(network: ScriptedNetwork) -> AdaptiveSelection:
    assert isinstance(network.policy, AdaptiveSelection)
    return network.policy


# The running example (tables 1 and 2): parts of tuples are counted in thousandths


class RunningExample(ScriptedNetwork):
    """Op1 to Op3 with t = .5, 1, 2 and selectivities .25, .5, .8; two tuples arrive at 1, 2 and 3.

    A slice takes the expected tuples that one tuple has become. Op3 counts as the output: an answer is .8 of
    its input.
    """

    UNIT = 1 * MS

    def __init__(self, policy: str) -> None:
        inner = {"policy": policy, "options": {"tuples": 1}}
        super().__init__("amos", {"policies": [inner]})
        query = ScriptedQuery("q", "default")
        for index, (time, selectivity) in enumerate([(0.5, 0.25), (1, 0.5), (2, 0.8)]):
            kind = OperatorKind.OPERATIONAL if index < 2 else OperatorKind.OUTPUT
            step = Step("select", selectivity, cost=time * self.UNIT / 1000)
            operator = ScriptedOperator(index + 1, query, step, kind, leaf=index == 0)
            if query.operators:
                query.operators[-1].downstream.append(operator)
            query.operators.append(operator)
        query.paths = [list(query.operators)]
        self.add_query(query)
        self.table: dict[float, tuple[float, ...]] = {}

    def play(self) -> RunningExample:
        arrivals = [1, 2, 3]
        while arrivals or self.waiting:
            if arrivals and (self.now >= arrivals[0] * self.UNIT or not self.waiting):
                self.now = arrivals.pop(0) * self.UNIT
                self.arrive("q", 1000)
                self.arrive("q", 1000)
                self.note()
            self.step()
        return self

    def end(self, core: int = 0) -> Report:
        slice_ = self._running.pop(core)
        for operator in slice_.operators:
            assert isinstance(operator, ScriptedOperator)
            part = operator.arrivals[0][0]
            self.now += int(part * operator.statistics.cost_per_tuple)
            self._pass_on(operator, operator.take(part))
            self.note()
        for operator in slice_.operators:
            assert isinstance(operator, ScriptedOperator)
            operator.running = False
        report = Report(1, 1, 1)
        self.policy.finished(slice_, report)
        return report

    def note(self) -> None:
        queues = [operator.waiting / 1000 for operator in self.queries["q"].operators]
        throughput = round(self.answers["q"] / 1000 * 0.8, 6)
        self.table[self.now / self.UNIT] = (*queues, sum(queues), throughput)

    def at(self, time: float) -> tuple[float, ...]:
        return self.table[max(noted for noted in self.table if noted <= time)]

    @property
    def first_output(self) -> float:
        return min(time for time, row in self.table.items() if row[-1])


def test_the_running_example_under_fifo_is_table_1() -> None:
    example = RunningExample("fifo").play()
    assert {time: example.at(time) for time in (1, 1.5, 1.75, 2, 2.5, 3, 3.5, 4)} == {
        1: (2, 0, 0, 2, 0),
        1.5: (1, 0.25, 0, 1.25, 0),
        1.75: (1, 0, 0.125, 1.125, 0),
        2: (3, 0, 0, 3, 0.1),
        2.5: (2, 0.25, 0, 2.25, 0.1),
        3: (4, 0, 0, 4, 0.2),
        3.5: (3, 0.25, 0, 3.25, 0.2),
        4: (3, 0, 0, 3, 0.3),
    }
    assert example.first_output == 2.0
    assert (max(example.table), example.at(7)[-1]) == (7.0, 0.6)


def test_the_running_example_under_mtiq_is_table_2() -> None:
    example = RunningExample("mtiq").play()
    assert {time: example.at(time) for time in (1, 1.5, 2, 2.5, 3, 3.5, 4)} == {
        1: (2, 0, 0, 2, 0),  # printed as 0 in all
        1.5: (1, 0.25, 0, 1.25, 0),
        2: (2, 0.5, 0, 2.5, 0),
        2.5: (1, 0.75, 0, 1.75, 0),
        3: (2, 1, 0, 3, 0),
        3.5: (1, 1.25, 0, 2.25, 0),
        4: (1, 1, 0.125, 2.125, 0),
    }
    assert example.first_output == 5.5
    assert (max(example.table), example.at(7)[-1]) == (7.0, 0.6)


# Specification, scores, wheel


def test_weights_are_relative_and_metrics_named_once() -> None:
    assert [share for _, share in TABLE_3.shares] == [0.75, 0.25]
    assert Specification.model_validate(TABLE_3.model_dump(mode="json")) == TABLE_3
    one = Requirement(metric=Metric.DELAY, quantifier=Quantifier.MINIMISE)
    with pytest.raises(ValidationError, match="metric 'delay' is named more than once"):
        Specification(requirements=(one, one))
    with pytest.raises(ValidationError, match="at least 1 item"):
        Specification(requirements=())
    with pytest.raises(ValidationError, match="greater than 0"):
        Specification.of(("delay", "minimise", 0))


def test_equation_1_scales_a_mean_to_the_range_of_the_history() -> None:
    history = Synopsis()
    for value in (2, 4, 6, 8):
        history.add(value)
    assert (history.mean, history.low, history.high) == (5, 2, 8)
    assert statistic_score(8, history, None, decay=0.25) == 0.5  # (8 - 5) / (8 - 2), the first time undecayed
    assert statistic_score(8, history, 0.2, decay=0.25) == pytest.approx(0.5 * 0.75 + 0.2 * 0.25)


def test_equation_1_is_0_while_all_values_are_the_same() -> None:
    history = Synopsis()
    history.add(7)
    assert statistic_score(7, history, None, decay=0.25) == 0
    assert statistic_score(7, history, 0.4, decay=0.25) == pytest.approx(0.1)


def test_equation_2_inverts_metrics_that_are_minimised() -> None:
    scores = {Metric.QUEUED_TUPLES: -0.4, Metric.DELAY: 0.2, Metric.OUTPUT_RATE: 0.9}
    assert policy_score(TABLE_3, scores) == pytest.approx(1 + 0.75 * 0.4 - 0.25 * 0.2)
    assert policy_score(Specification.of(("output_rate", "maximise", 1)), scores) == pytest.approx(1.9)
    assert policy_score(TABLE_3, {}) == 1


def test_the_printed_learner_scores_against_the_history_of_all() -> None:
    learner = PrintedLearner(policies=2, decay=0.25)
    learner.learn(0, [{Metric.QUEUED_TUPLES: 10.0}])  # nothing to compare with: 0
    learner.learn(1, [{Metric.QUEUED_TUPLES: 20.0}, {Metric.QUEUED_TUPLES: 40.0}])
    # history 10, 20, 40: mean 70/3, range 30; the mean of policy 1 is 30: (30 - 70/3) / 30
    assert learner.scores(QUEUE) == pytest.approx([1, 1 - 2 / 9])
    learner.learn(0, [{Metric.QUEUED_TUPLES: 10.0}])
    # history 10, 20, 40, 10: mean 20; (10 - 20) / 30 x .75 + 0 x .25
    assert learner.scores(QUEUE) == pytest.approx([1.25, 1 - 2 / 9])


def test_the_wheel_gives_chances_in_proportion_to_scores() -> None:
    assert chances([1.5, 0.5, 0]) == [0.75, 0.25, 0]
    assert chances([0, 0]) == [0.5, 0.5]
    random = Random(1)
    spins = Counter(spin([1.25, 0.75, 0.5], random) for _ in range(20_000))
    assert [spins[index] / 20_000 for index in range(3)] == pytest.approx([0.5, 0.3, 0.2], abs=0.015)


# Measuring


def test_an_interval_measures_the_work_done_and_the_work_left() -> None:
    network = ScriptedNetwork("rr", {"tuples": 10})
    query = network.add("q", [Step("select", 0.5, size=8.0)])
    network.now = 100 * MS
    interval = Interval(network.now)
    network.arrive("q", 30)
    for _ in range(2):  # 10 tuples through the selection, and the 5 that it passes through the output
        assert network.begin()
        interval.add(network.end())
    assert interval.measure(list(Metric), [query], 600 * MS) == {
        Metric.OUTPUT_RATE: 5 / 0.5,
        Metric.QUEUED_TUPLES: 20,
        Metric.QUEUED_BYTES: 20 * 8,
        Metric.PENDING_ANSWERS: 20 * 0.5,
        Metric.DELAY: 10 * 100 + 5 * 100,
    }


def test_delay_without_an_answer_is_the_age_of_the_oldest_tuple() -> None:
    network = ScriptedNetwork("rr")
    query = network.add("q", [Step("select", 0.5)])
    interval = Interval(0)
    assert interval.measure([Metric.DELAY], [query], 5 * MS) is None  # there was no work
    network.now = 2 * MS
    network.arrive("q", 1)
    assert interval.measure([Metric.DELAY], [query], 5 * MS) == {Metric.DELAY: 3 * MS}
    network.now = 0
    interval.add(Report(consumed=10, produced=0, elapsed=10))
    network.remove("q")
    assert interval.measure([Metric.DELAY], [], 5 * MS) == {}


# Choosing while it runs


def adaptive(*names: str, seed: int = 0, **options: Any) -> ScriptedNetwork:
    """A query that releases memory fast and one that answers fast; an interval is 10 ms."""
    policies = [{"policy": name, "options": {"tuples": 20}} for name in names]
    network = ScriptedNetwork("amos", {"policies": policies, "interval_ms": 10, **options}, seed)
    network.add("releases", [Step("select", 0.02, 10 * US), Step("project", 1.0, 200 * US)])
    network.add("answers", [Step("project", 1.0, 15 * US)])
    return network


def drive(network: ScriptedNetwork, intervals: int, random: Random) -> list[str]:
    """Offer a load between .6 and 1.4; return which policy decided in each interval."""
    in_charge, load, begin = [], 1.0, network.now // MS
    for tick in range(begin, begin + intervals * 10):
        if tick % 50 == 0:
            load = random.choice((0.6, 1.0, 1.4))
        network.arrive("releases", 1 + random.randrange(int(80 * load)))
        network.arrive("answers", 1 + random.randrange(int(60 * load)))
        while network.now < (tick + 1) * MS and network.step():
            pass
        network.now = max(network.now, (tick + 1) * MS)
        if tick % 10 == 0:
            in_charge.append(amos_of(network).active.policy)
    return in_charge


def test_every_policy_has_a_first_turn_before_the_learner_chooses() -> None:
    network = adaptive("rr", "wrr", "hr", "chain")
    first = drive(network, 5, Random(0))
    assert list(dict.fromkeys(first))[:4] == ["rr", "wrr", "hr", "chain"]


def stints(in_charge: list[str]) -> list[int]:
    """Return for how many intervals each policy decided, without the last one."""
    return [len(list(group)) for _, group in groupby(in_charge)][:-1]


def test_a_new_policy_is_given_time_before_it_is_judged() -> None:
    assert min(stints(drive(adaptive("rr", "hr", switch_delay=3), 60, Random(0)))) == 3
    assert min(stints(drive(adaptive("rr", "hr", switch_delay=1), 60, Random(0)))) == 1


def test_idle_intervals_are_not_judged_and_a_clock_set_back_starts_a_new_interval() -> None:
    network = adaptive("rr", "hr")
    for now in (0, 10, 20, 500):
        network.now = now * MS
        assert network.step() is None
    assert amos_of(network).active.policy == "rr"
    network.arrive("answers", 100)
    network.now = 100 * MS
    network.step()
    assert amos_of(network).active.policy == "rr"
    network.now = 110 * MS
    network.step()
    assert amos_of(network).active.policy == "hr"


@pytest.mark.parametrize("seed", range(3))
def test_the_specification_decides_which_policy_the_sharp_learner_prefers(seed: int) -> None:
    network = adaptive("hr", "chain", seed=seed, learner="sharp", specification=DELAY)
    random = Random(seed)
    drive(network, 60, random)
    assert Counter(drive(network, 60, random))["hr"] >= 50
    amos_of(network).specify(QUEUE)
    drive(network, 60, random)
    assert Counter(drive(network, 100, random))["chain"] >= 65


def test_the_printed_learner_keeps_using_all_policies() -> None:
    used = Counter(drive(adaptive("hr", "chain", specification=QUEUE), 100, Random(0)))
    assert min(used.values()) >= 25


def test_the_sharp_learner_credits_no_policy_for_the_queue_that_it_inherits() -> None:
    # Policy 0 doubles the queue and policy 1 halves it. Whenever 1 begins, the queue is long.
    learner, queue = SharpLearner(policies=2), 1000.0
    for round_ in range(60):
        index = (round_ // 3) % 2
        queue *= 0.5 if index else 2.0
        learner.learn(index, [{Metric.QUEUED_TUPLES: queue}])
    worse, better = learner.scores(QUEUE)
    assert better - worse > 1.0  # of 2 log 2 = 1.39 in all
    choices = Counter(learner.choose(QUEUE, Random(seed)) for seed in range(100))
    assert choices[1] >= 95


def test_the_sharp_learner_judges_delay_by_pending_answers() -> None:
    learner = SharpLearner(policies=2)
    metric = learner.evidence(Metric.DELAY)
    assert metric is Metric.PENDING_ANSWERS
    for index in (0, 1) * 5:
        learner.learn(index, [{metric: (100.0, 10.0)[index]}])
    worse, better = learner.scores(DELAY)
    assert better > worse


def test_the_sharp_learner_retries_policies_that_it_has_not_used_for_long() -> None:
    learner, random = SharpLearner(policies=2), Random(0)
    for index in (0, 1) * 10:
        learner.learn(index, [{Metric.QUEUED_TUPLES: (100.0, 140.0)[index]}])
    chosen = []
    for _ in range(600):
        chosen.append(learner.choose(QUEUE, random))
        # The load has changed: the policy that was worse is better now.
        learner.learn(chosen[-1], [{Metric.QUEUED_TUPLES: (100.0, 50.0)[chosen[-1]]}])
    assert sum(chosen[-100:]) >= 90


# Taking over


def test_a_slice_that_runs_while_the_policy_changes_is_neither_lost_nor_run_twice() -> None:
    network = adaptive("rr", "fifo", "hr", "chain")
    random = Random(0)
    begun: set[int] = set()
    for tick in range(2000):
        if tick < 1500:
            network.arrive("releases", 1 + random.randrange(40))
            network.arrive("answers", 1 + random.randrange(20))
        core = random.randrange(3)
        if core in begun:
            network.end(core)
            begun.discard(core)
        elif network.begin(core) is not None:
            begun.add(core)
        if tick == 700:
            network.reclass("answers", "H")
    for core in begun:
        network.end(core)
    network.run()
    assert network.waiting == 0


def test_growth_is_tracked_for_all_policies_that_may_be_chosen() -> None:
    assert not adaptive("hr", "chain").policy.watches_growth
    network = adaptive("hr", "mtiq")
    assert network.policy.watches_growth
    network.arrive("releases", 100)
    network.arrive("answers", 90)
    for now in (0, 11):  # hr takes 20 of the answers, mtiq 20 of the others: 80 and 70 are left
        network.now = now * MS
        network.step()
    assert amos_of(network).active.policy == "mtiq"
    network.arrive("answers", 50)
    slice_ = network.step()
    assert slice_ is not None
    assert slice_.operators == (network.queries["answers"].operators[0],)


# Options


def test_by_default_it_chooses_from_the_policies_of_the_paper() -> None:
    network = ScriptedNetwork("amos")
    names = [inner.policy for inner in amos_of(network).options.policies]
    assert names == ["rr", "fifo", "mtiq", "chain", "hr"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"policies": [{"policy": "best"}]}, "unknown policy 'best'; known are"),
        ({"policies": [{"policy": "cqc"}]}, "'cqc' is a policy of class level"),
        ({"policies": [{"policy": "rr", "options": {"tuples": 0}}]}, "policy 'rr': 'tuples' must be greater"),
        ({"policies": []}, "at least 1 item"),
        ({"decay": 0.5}, "less than 0.5"),
        ({"interval_ms": 0}, "greater than 0"),
        ({"learner": "best"}, "'printed' or 'sharp'"),
        ({"specification": {"requirements": [{"metric": "joy"}]}}, "'output_rate', 'queued_tuples'"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidPolicy, match=problem):
        check_options("amos", options)
