"""The optimizer on scripted metrics: the status of targets, actions, and actions that are undone."""

from __future__ import annotations

import pytest
from tests.support.optimizer.scripted_queries import LATENCY, MEMORY, PACE, ScriptedQuery

from mavstream_protocol.scheduling import DEFAULT_SCHEDULER, SchedulerSettings
from mavstream_server.engine.process.messages import ShedRows, SwitchPolicy
from mavstream_server.optimizer.change import Change
from mavstream_server.optimizer.journal import Outcome
from mavstream_server.optimizer.monitor import Monitor, Objective
from mavstream_server.optimizer.optimizer import Optimizer
from mavstream_server.optimizer.rule import OptimizerRule
from mavstream_server.optimizer.rules import all_rules
from mavstream_server.optimizer.rules.policy import CANDIDATES, SwitchPolicyRule
from mavstream_server.optimizer.rules.shedding import ShedRule
from mavstream_server.optimizer.situation import Situation
from mavstream_server.optimizer.target_status import TargetState, TargetStatus
from mavstream_server.scheduling.policy import Level
from mavstream_server.scheduling.registry import POLICIES, check_options

KEPT, AT_RISK, MISSED, UNKNOWN = (
    TargetState.KEPT,
    TargetState.AT_RISK,
    TargetState.MISSED,
    TargetState.UNKNOWN,
)
SEGMENT, CHAIN = CANDIDATES[Objective.MEMORY]


# Target status


@pytest.mark.parametrize(
    ("ratios", "states"),
    [
        ([0.5, 0.5], [KEPT, KEPT]),
        ([0.5, 1.05, 0.9], [KEPT, AT_RISK, AT_RISK]),
        ([0.5, 2.0, 2.0, 2.0], [KEPT, AT_RISK, AT_RISK, MISSED]),
        ([0.5, 2.0, 2.0, 0.5], [KEPT, AT_RISK, AT_RISK, AT_RISK]),  # two outliers are not a miss
        ([2.0, 2.0, 2.0, 1.05, 2.0], [AT_RISK, AT_RISK, MISSED, AT_RISK, AT_RISK]),
        ([2.0, 2.0, 2.0, 0.5, 0.5, 0.5], [AT_RISK, AT_RISK, MISSED, AT_RISK, AT_RISK, KEPT]),
        ([0.5, None, 0.5], [KEPT, UNKNOWN, KEPT]),
    ],
)
def test_the_status_of_a_target_changes_only_after_several_observations(
    ratios: list[float | None], states: list[TargetState]
) -> None:
    status = TargetStatus(patience=3)
    assert [status.judge(ratio, 0.1, ratio, float(now)) for now, ratio in enumerate(ratios)] == states


def test_a_target_status_records_since_when_and_its_changes() -> None:
    status = TargetStatus(patience=1)
    for now, ratio in enumerate([0.5, 0.5, 3.0, 3.0]):
        status.judge(ratio, 0.1, 10 * ratio, float(now))
    assert status.since == 2
    assert [(one.at, one.before, one.after, one.measured) for one in status.changes] == [
        (0, UNKNOWN, KEPT, 5.0),
        (2, KEPT, MISSED, 30.0),
    ]


def test_a_target_with_a_rising_trend_is_at_risk_before_it_is_missed() -> None:
    status = TargetStatus(patience=3, foresees=True)
    foreseen = []
    for now, ratio in enumerate([0.1, 0.1, 0.3, 0.6, 0.6]):
        status.judge(ratio, 0.1, ratio, float(now))
        foreseen.append(status.foreseen)
    # It has grown by a quarter of the target per second, extrapolated over three seconds.
    assert foreseen == [None, None, None, pytest.approx(0.6 + 0.25 * 3), None]
    assert [one.after for one in status.changes] == [KEPT, AT_RISK, KEPT]


# The monitor


def test_latency_is_measured_over_the_last_seconds() -> None:
    query, monitor = ScriptedQuery("q", qos=LATENCY), Monitor(seconds=3, patience=1)
    for now in range(10):
        query.answer(100, 1000 if now < 5 else 1)
        monitor.observe([query.observed()], float(now))
    assert monitor.queries["q"].targets[Objective.LATENCY].measured == pytest.approx(1.0)
    assert monitor.queries["q"].statuses[Objective.LATENCY].state is KEPT


def test_a_query_without_answers_while_rows_wait_misses_its_latency_target() -> None:
    query, monitor = ScriptedQuery("q", qos=LATENCY, backlog=1000), Monitor(seconds=3, patience=1)
    query.answer(10, 1)
    for now in range(6):
        monitor.observe([query.observed()], float(now))
    target = monitor.queries["q"].targets[Objective.LATENCY]
    assert target.measured == pytest.approx(3000)
    assert monitor.queries["q"].statuses[Objective.LATENCY].state is MISSED


def test_a_query_without_rows_does_not_miss_its_latency_target() -> None:
    query, monitor = ScriptedQuery("q", qos=LATENCY), Monitor(seconds=3, patience=1)
    for now in range(6):
        monitor.observe([query.observed()], float(now))
    assert monitor.queries["q"].statuses[Objective.LATENCY].state is UNKNOWN


def test_metrics_of_an_earlier_epoch_do_not_count() -> None:
    query, monitor = ScriptedQuery("q", qos={"throughput": {"at_least": 100}}), Monitor(seconds=5, patience=1)
    for now in range(4):
        query.rows += 1000
        monitor.observe([query.observed()], float(now))
    assert monitor.queries["q"].targets[Objective.THROUGHPUT].measured == 1000
    query.epoch, query.rows = 2, 0
    monitor.observe([query.observed()], 4.0)
    assert monitor.queries["q"].targets[Objective.THROUGHPUT].measured is None


@pytest.mark.parametrize(("backlog", "state"), [(0, KEPT), (10, MISSED)])
def test_a_throughput_is_missed_only_while_rows_wait(backlog: int, state: TargetState) -> None:
    qos: dict[str, object] = {"throughput": {"at_least": 1000}}
    query, monitor = ScriptedQuery("q", qos=qos, backlog=backlog), Monitor(seconds=5, patience=1)
    for now in range(4):
        query.rows += 100
        monitor.observe([query.observed()], float(now))
    assert monitor.queries["q"].statuses[Objective.THROUGHPUT].state is state


def test_a_removed_query_is_no_longer_monitored() -> None:
    monitor = Monitor(patience=1)
    first, second = ScriptedQuery("first", qos=MEMORY), ScriptedQuery("second", qos=MEMORY)
    monitor.observe([first.observed(), second.observed()], 0.0)
    monitor.forget({"second"})
    assert set(monitor.queries) == {"second"}


# Decisions


class Server:
    """Queries, the policy and shed shares, a second at a time."""

    def __init__(self, *queries: ScriptedQuery, rules: Optimizer | None = None) -> None:
        self.queries = queries
        self.monitor = Monitor(seconds=2, patience=2)
        self.optimizer = rules or Optimizer(all_rules(), PACE)
        self.scheduler = SchedulerSettings(policy="rr")
        self.shed: dict[str, float] = {}
        self.now = 0.0

    def second(self) -> Change | None:
        """Observe, decide and apply the change."""
        self.now += 1
        self.monitor.observe([query.observed() for query in self.queries], self.now)
        priorities = {query.class_name: query.priority for query in self.queries}
        change = self.optimizer.decide(
            Situation(self.now, self.monitor, self.scheduler, priorities, dict(self.shed))
        )
        match change:
            case SwitchPolicy(settings):
                self.scheduler = settings
            case ShedRows(query, share):
                self.shed[query] = share
        return change

    def seconds(self, count: int) -> list[Change]:
        """Return the changes of a number of seconds."""
        return [change for _ in range(count) if (change := self.second()) is not None]


def test_nothing_is_done_while_targets_are_kept() -> None:
    query = ScriptedQuery("q", qos=MEMORY, held=1000)
    assert Server(query).seconds(100) == []


def test_a_missed_memory_target_switches_to_a_memory_policy_that_is_kept_if_it_helps() -> None:
    query = ScriptedQuery("q", qos=MEMORY, held=3_000_000)
    server = Server(query)
    (change,) = server.seconds(3)
    assert change == SwitchPolicy(SEGMENT)
    query.held = 500_000
    assert server.seconds(20) == []
    (decision,) = server.optimizer.journal
    assert decision.outcome is Outcome.KEPT
    assert decision.before == pytest.approx(2.0)
    assert decision.after == 0
    assert "bytes is 3e+06, the target is 1e+06" in decision.proposal.why


def test_an_action_that_does_not_help_is_undone_and_the_next_one_tried() -> None:
    query = ScriptedQuery("q", qos=MEMORY, held=3_000_000)
    server = Server(query, rules=Optimizer([SwitchPolicyRule()], PACE))
    changes = server.seconds(30)
    rr = SchedulerSettings(policy="rr")
    assert changes == [SwitchPolicy(one) for one in (SEGMENT, rr, CHAIN, rr)], "then both are barred"
    assert {decision.outcome for decision in server.optimizer.journal} == {Outcome.UNDONE}
    assert server.seconds(60)[:1] == [SwitchPolicy(SEGMENT)], "tried again later"


@pytest.mark.parametrize("objective", list(Objective))
def test_every_candidate_policy_respects_classes(objective: Objective) -> None:
    for settings in CANDIDATES[objective]:
        check_options(settings.policy, settings.options)
        assert POLICIES[settings.policy].level is Level.CLASS


def test_a_missed_latency_of_an_important_class_switches_to_a_class_policy() -> None:
    query = ScriptedQuery("q", "critical", 6, LATENCY)
    server = Server(query)
    changes: list[Change] = []
    for _ in range(4):
        query.answer(100, 500)
        changes += server.seconds(1)
    assert changes == [SwitchPolicy(DEFAULT_SCHEDULER)]


def test_a_target_at_risk_switches_the_policy_and_sheds_no_rows() -> None:
    def changes_of(rule: OptimizerRule) -> list[Change]:
        query = ScriptedQuery("q", "critical", 6, LATENCY)
        low = ScriptedQuery("low", "low", 1, {"max_loss": "8%"})
        server = Server(query, low, rules=Optimizer([rule], PACE))
        changes: list[Change] = []
        for latency in (1, 1, 7, 9):
            query.answer(1000, latency)
            changes += server.seconds(1)
            assert server.monitor.queries["q"].statuses[Objective.LATENCY].state is not MISSED
        return changes

    assert changes_of(SwitchPolicyRule()) == [SwitchPolicy(DEFAULT_SCHEDULER)]
    assert changes_of(ShedRule()) == []


# Weights


def both(latency: float, memory: float) -> dict[str, object]:
    """Return a target of 10 ms and one of 1 MB, with their weights."""
    return {**LATENCY, **MEMORY, "weights": {"latency": latency, "memory": memory}}


@pytest.mark.parametrize(
    ("latency", "memory", "expected"),
    [
        (1, 1, SEGMENT),  # 2 x 1 against 0.5 x 1
        (1, 3, SEGMENT),  # 2 x 1.5 against 0.5 x 0.5
        (3, 1, SEGMENT),  # 2 x 0.5 against 0.5 x 1.5
        (9, 1, DEFAULT_SCHEDULER),  # 2 x 0.2 against 0.5 x 1.8
    ],
)
def test_the_miss_with_the_most_weight_is_acted_on(
    latency: float, memory: float, expected: SchedulerSettings
) -> None:
    """Memory is twice its target too high, latency half of it."""
    query = ScriptedQuery("q", qos=both(latency, memory), held=3_000_000)
    server = Server(query)
    changes: list[Change] = []
    for _ in range(3):
        query.answer(100, 15)
        changes += server.seconds(1)
    assert changes == [SwitchPolicy(expected)]


@pytest.mark.parametrize(
    ("latency", "memory", "outcome"), [(1, 1, Outcome.KEPT), (1, 9, Outcome.KEPT), (9, 1, Outcome.UNDONE)]
)
def test_an_action_that_helps_a_light_target_and_harms_a_heavy_one_is_undone(
    latency: float, memory: float, outcome: Outcome
) -> None:
    """Memory falls from three times its target to half of it, and latency rises to one and a half."""
    query = ScriptedQuery("q", qos=both(latency, memory), held=3_000_000)
    server = Server(query)
    for _ in range(3):
        query.answer(100, 5)
        server.second()
    assert server.scheduler == SEGMENT
    query.held = 500_000
    for _ in range(8):
        query.answer(100, 15)
        server.second()
    first = next(iter(server.optimizer.journal))
    assert first.outcome is outcome
    assert first.before == pytest.approx(2 * 2 * memory / (latency + memory))
    assert first.after == pytest.approx(0.5 * 2 * latency / (latency + memory))


def test_no_action_is_taken_for_a_target_with_weight_0() -> None:
    query = ScriptedQuery("q", qos=both(1, 0), held=3_000_000)
    server = Server(query)
    for _ in range(20):
        query.answer(100, 1)
        assert server.second() is None
    assert server.monitor.queries["q"].statuses[Objective.MEMORY].state is MISSED, "it is reported"


def test_a_more_important_class_comes_first_whatever_the_weights() -> None:
    low = ScriptedQuery("low", "low", 1, both(1, 99), held=300_000_000)
    high = ScriptedQuery("high", "high", 6, LATENCY)
    server = Server(low, high)
    changes: list[Change] = []
    for _ in range(3):
        high.answer(100, 15)
        changes += server.seconds(1)
    assert changes == [SwitchPolicy(DEFAULT_SCHEDULER)]


def test_one_action_is_taken_at_a_time() -> None:
    first, second = ScriptedQuery("a", qos=MEMORY, held=3_000_000), ScriptedQuery("b", "high", 5, LATENCY)
    server = Server(first, second)
    changes: list[Change] = []
    for _ in range(6):
        second.answer(100, 500)
        changes += server.seconds(1)
    assert len(changes) == 1
    assert server.optimizer.on_probation is not None


def test_rows_are_shed_where_allowed_lowest_class_first_in_steps() -> None:
    critical = ScriptedQuery("alarm", "critical", 6, LATENCY)
    low = ScriptedQuery("low", "low", 1, {"max_loss": "8%"})
    strict = ScriptedQuery("strict", "low", 1, {})
    server = Server(critical, low, strict, rules=Optimizer([ShedRule()], PACE))
    latency = 100.0
    for _ in range(40):
        critical.answer(100, latency)
        if server.second() is not None:
            latency *= 0.5
    assert set(server.shed) == {"low"}
    assert 0 < server.shed["low"] <= 0.08
    for _ in range(80):
        critical.answer(100, 1)
        server.second()
    assert server.shed["low"] == 0, "an action that is no longer needed is undone"


def test_no_rows_of_a_class_are_shed_for_a_less_important_one() -> None:
    low = ScriptedQuery("low", "low", 1, LATENCY)
    high = ScriptedQuery("high", "high", 6, {"max_loss": "50%"})
    server = Server(low, high, rules=Optimizer([ShedRule()], PACE))
    for _ in range(20):
        low.answer(100, 500)
        server.second()
    assert server.shed == {}


def test_a_rule_can_be_switched_off() -> None:
    query = ScriptedQuery("q", qos=MEMORY, held=3_000_000)
    server = Server(query)
    server.optimizer.disabled.add("policy")
    assert server.seconds(20) == []


def test_a_change_that_fails_is_recorded_and_not_retried_at_once() -> None:
    query = ScriptedQuery("q", qos=MEMORY, held=3_000_000)
    server = Server(query, rules=Optimizer([SwitchPolicyRule()], PACE))
    server.seconds(2)
    server.optimizer.failed("the engine is away", server.now)
    server.scheduler = SchedulerSettings(policy="rr")
    (change,) = server.seconds(1)
    assert change == SwitchPolicy(CHAIN)
    first, _ = server.optimizer.journal
    assert first.outcome is Outcome.FAILED
    assert first.note == "the engine is away"
    assert server.optimizer.journal.of("q") == list(server.optimizer.journal)
