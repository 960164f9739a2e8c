"""Scenarios: a real engine under load in virtual time, with the optimizer."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest
from tests.support.optimizer.scenarios import World, play

from mavstream_protocol.optimizer import Objective, OptimizerSettings, TargetState
from mavstream_protocol.scheduling import SchedulerSettings, Sharing

KEPT, MISSED = TargetState.KEPT, TargetState.MISSED
RATE = 360
ALARM = {"latency": {"p95": "200ms"}}
REPORT = {"latency": {"p95": "500ms"}, "max_loss": "20%"}
LOW = ("low0", "low1", "low2")

# The other scenarios run with sharing, as servers do.
shared_and_alone = pytest.mark.parametrize("sharing", [Sharing.CLASS, Sharing.OFF])


async def alarms_and_reports(world: World) -> None:
    """Two quick critical queries and three costly ones that allow loss: a quarter of the capacity."""
    for n in range(2):
        await world.query(f"alarm{n}", "critical", ALARM, 20)
    for id_ in LOW:
        await world.query(id_, "low", REPORT, 250)
    world.rate = RATE
    await world.seconds(6)


def test_a_burst_of_four_times_the_rate_sheds_rows_of_the_low_class_only(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        # Short trains: the low queries, which take turns, miss their targets at the same time.
        with World(tmp_path, train=64, critical=6, low=1) as world:
            await alarms_and_reports(world)
            assert world.decisions == []
            world.rate = 4 * RATE  # 1.14 times the capacity of the engine
            lagged = False
            for _ in range(30):
                await world.seconds(1)
                assert world.state("alarm0") is world.state("alarm1") is KEPT, world.second
                lagged |= world.state("low0") is MISSED
            assert lagged
            assert set(world.optimizing.enactor.shares) == set(LOW)
            world.rate = RATE
            await world.seconds(60)
            assert world.optimizing.enactor.shares == {}, "all actions are undone within a minute"
            assert {world.state(id_) for id_ in LOW} == {KEPT}
            assert {rule for rule, _ in world.decisions} == {"shedding"}
            assert world.decisions[0] == ("shedding", "kept")
            for id_ in LOW:
                query = world.engine.engine.queries[id_]
                (source,) = query.network.sources
                shed = source.counters["shed"]
                assert 0 < shed <= 0.2 * 4 * RATE * 45
                assert query.rows_in + shed == world.arrived, "and every row is accounted for"

    play(scenario)


@shared_and_alone
def test_a_missed_critical_target_switches_to_a_class_policy(tmp_path: Path, sharing: Sharing) -> None:
    async def scenario() -> None:
        with World(tmp_path, SchedulerSettings(policy="rr"), sharing=sharing, critical=6, low=1) as world:
            await alarms_and_reports(world)
            assert world.members == (set(world.registered) if sharing is Sharing.CLASS else set())
            world.rate = 4 * RATE
            await world.seconds(4)
            assert world.policy == "cqc/rr"
            assert "p95 is" in next(iter(world.optimizing.optimizer.journal)).proposal.why
            await world.seconds(16)
            assert world.state("alarm0") is world.state("alarm1") is KEPT
            assert world.decisions[0] == ("policy", "kept")

    play(scenario)


@shared_and_alone
def test_a_missed_memory_target_switches_to_a_memory_policy(tmp_path: Path, sharing: Sharing) -> None:
    async def scenario() -> None:
        with World(tmp_path, SchedulerSettings(policy="rr"), sharing=sharing) as world:
            await world.query("slim", "default", {"memory": {"at_most": "10KB"}}, 100, "x % 100 = 0")
            for n in range(3):
                await world.query(f"fat{n}", "default", {}, 400)
            world.rate = 900  # 1.2 times the capacity of the engine
            while not world.decisions:
                await world.seconds(1)
                assert world.second < 30
            assert world.state("slim", Objective.MEMORY) is MISSED
            assert world.policy == "cqc/segment"
            await world.seconds(16)
            assert world.state("slim", Objective.MEMORY) is KEPT
            assert world.decisions == [("policy", "kept")]

    play(scenario)


@pytest.mark.parametrize(
    ("objective", "target"),
    [(Objective.MEMORY, {"at_most": "20KB"}), (Objective.THROUGHPUT, {"at_least": 1000})],
)
def test_a_shared_pipeline_that_cannot_keep_up_misses_the_targets_of_its_members(
    tmp_path: Path, objective: Objective, target: dict[str, object]
) -> None:
    async def scenario() -> None:
        with World(tmp_path, settings=OptimizerSettings(enabled=False)) as world:
            for n in range(3):
                await world.query(f"q{n}", "default", {objective.value: target}, 0, shared_us=1250)
            world.rate = 1000  # 1.25 times the capacity of the engine
            await world.seconds(20)
            assert world.members == set(world.registered)
            assert {world.state(id_, objective) for id_ in world.registered} == {MISSED}
            (measured,) = {world.measured(id_, objective) for id_ in world.registered}
            assert measured is not None
            if objective is Objective.THROUGHPUT:
                assert measured == pytest.approx(800, rel=0.05)
            else:
                assert measured > 4 * 1000 * 8, "a fifth of the rows of 20 seconds waits"

    play(scenario)


def test_memory_of_a_low_class_is_not_improved_at_the_cost_of_the_critical_class(tmp_path: Path) -> None:
    async def scenario() -> None:
        with World(tmp_path, critical=6, low=1) as world:
            await world.query("alarm", "critical", ALARM, 20)
            await world.query("slim", "low", {"memory": {"at_most": "10KB"}}, 100, "x % 100 = 0")
            for n in range(3):
                await world.query(f"fat{n}", "low", {}, 400)
            world.rate = 200
            await world.seconds(6)
            world.rate = 900  # 1.2 times the capacity of the engine
            missed = False
            for _ in range(40):
                await world.seconds(1)
                missed |= world.state("slim", Objective.MEMORY) is MISSED
                assert (world.measured("alarm") or 0) <= 200, world.second
            assert missed
            assert world.policy == "cqc/segment"
            assert world.state("slim", Objective.MEMORY) is KEPT
            assert world.decisions == [("policy", "kept")]
            (decision,) = world.optimizing.optimizer.journal
            assert decision.proposal.what == "switch from cqc over rr to cqc over segment"

    play(scenario)


@pytest.mark.parametrize(
    ("weights", "policy"),
    [({"latency": 20, "memory": 1}, "cqc/rr"), ({"latency": 1, "memory": 20}, "cqc/segment")],
)
def test_weights_decide_which_of_two_missed_targets_is_acted_on(
    tmp_path: Path, weights: dict[str, float], policy: str
) -> None:
    async def scenario() -> None:
        watching = OptimizerSettings(enabled=False)
        with World(tmp_path, SchedulerSettings(policy="rr"), watching) as world:
            both = {"latency": {"p95": "400ms"}, "memory": {"at_most": "4KB"}, "weights": weights}
            await world.query("both", "default", both, 100, "x % 100 = 0")
            for n in range(3):
                await world.query(f"fat{n}", "default", {}, 400)
            world.rate = 900  # 1.2 times the capacity of the engine
            await world.seconds(1)
            while not world.state("both") is world.state("both", Objective.MEMORY) is MISSED:
                await world.seconds(1)
                assert world.second < 30
            await world.optimizing.configure(OptimizerSettings())
            await world.seconds(1)
            assert world.policy == policy
            why = next(iter(world.optimizing.optimizer.journal)).proposal.why
            assert why.endswith(f"with weight {40 / 21:.4g}")

    play(scenario)


def test_throughput_of_a_low_class_is_not_improved_at_the_cost_of_the_critical_class(tmp_path: Path) -> None:
    async def scenario() -> None:
        with World(tmp_path, critical=6, low=1) as world:
            await world.query("alarm", "critical", ALARM, 20)
            await world.query("quick", "low", {"throughput": {"at_least": 890}}, 100)
            for n in range(3):
                await world.query(f"fat{n}", "low", {}, 400)
            world.rate = 200
            await world.seconds(6)
            world.rate = 900  # 1.2 times the capacity of the engine
            fell_short = False
            for _ in range(60):
                await world.seconds(1)
                fell_short |= world.state("quick", Objective.THROUGHPUT) is MISSED
                assert (world.measured("alarm") or 0) <= 200, world.second
            assert fell_short
            assert world.policy == "cqc/path_capacity"
            assert world.state("quick", Objective.THROUGHPUT) is KEPT
            assert world.decisions == [("policy", "kept")]

    play(scenario)


def test_changed_selectivities_lead_to_a_cheaper_plan(tmp_path: Path) -> None:
    async def scenario() -> None:
        with World(tmp_path) as world:
            # At first one row in ten passes the first select; from row 6000 on all do, and few the second.
            flipping = "x >= 6000 OR x % 10 = 0; x < 6000 OR x % 10 = 0"
            await world.query("alarm", "default", ALARM, 600, flipping)
            world.rate = 900
            await world.seconds(6)
            assert world.decisions == []
            busy = world.engine.engine.loop.busy
            assert busy / world.second / 1e9 == pytest.approx(900 * 1.1 * 600e-6, rel=0.1)
            while not world.decisions:  # 900 rows a second, twice 600 us each: an overload
                await world.seconds(1)
                assert world.second < 60
            await world.seconds(30)
            assert world.decisions[0] == ("plan", "kept")
            assert world.state("alarm") is KEPT
            before, busy = world.second, world.engine.engine.loop.busy
            await world.seconds(5)
            spent = (world.engine.engine.loop.busy - busy) / (world.second - before) / 1e9
            assert spent == pytest.approx(900 * 1.1 * 600e-6, rel=0.1)

    play(scenario)


def test_a_policy_that_does_not_help_is_undone_and_barred(tmp_path: Path) -> None:
    async def scenario() -> None:
        with World(tmp_path, SchedulerSettings(policy="rr")) as world:
            for n in range(3):
                await world.query(f"fat{n}", "default", {"memory": {"at_most": "20KB"}}, 400)
            world.rate = 1000  # no policy releases memory as fast as rows arrive
            policies = []
            for _ in range(60):
                await world.seconds(1)
                policies.append(world.policy)
            assert [name for name, _ in groupby(policies)] == ["rr", "cqc/segment", "rr", "cqc/chain", "rr"]
            assert world.decisions == [("policy", "undone")] * 2

    play(scenario)


def test_a_query_that_misses_its_latency_goes_first_in_its_class(tmp_path: Path) -> None:
    async def scenario() -> None:
        with World(tmp_path) as world:
            for n in range(5):
                await world.query(f"w{n}", "default", {"latency": {"p95": "1s"}}, 100)
            await world.query("tight", "default", {"latency": {"p95": "20ms"}}, 100)
            world.rate = 500
            await world.seconds(3)
            assert world.state("tight") is MISSED
            assert world.optimizing.enactor.weights == {"tight": 2}
            await world.seconds(16)
            assert world.state("tight") is KEPT
            assert world.decisions == [("rank", "kept")]
            await world.seconds(40)
            # It was undone once, the target was missed, it was done again, and then kept.
            assert [rule for rule, _ in world.decisions] == ["rank"] * 3
            assert world.optimizing.enactor.weights == {"tight": 2}
            assert world.state("tight") is KEPT

    play(scenario)


def test_all_rules_together_help_the_most_important_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        rr = SchedulerSettings(policy="rr")
        quick = OptimizerSettings.model_validate({"pace": {"calm": "5s"}})
        with World(tmp_path, rr, quick, critical=6, work=3, low=1) as world:
            await world.query("alarm", "critical", ALARM, 20)
            for n in range(3):
                await world.query(f"w{n}", "work", {"latency": {"p95": "1s"}}, 40)
            await world.query("tight", "work", {"latency": {"mean": "50ms", "tolerance": "5%"}}, 40)
            for id_ in LOW[:2]:
                await world.query(id_, "low", REPORT, 300)
            world.rate = RATE
            await world.seconds(10)
            world.rate = 4 * RATE
            await world.seconds(50)
            assert world.decisions[:3] == [("policy", "kept"), ("rank", "kept"), ("shedding", "kept")]
            assert world.state("alarm") is world.state("w0") is world.state("tight") is KEPT
            world.rate = RATE
            await world.seconds(55)
            assert {world.state(id_) for id_ in world.registered} == {KEPT}
            enactor = world.optimizing.enactor
            assert (enactor.shares, enactor.weights) == ({}, {}), "all actions are undone"
            assert world.policy == "cqc/rr", "a policy that helped is kept"

    play(scenario)
