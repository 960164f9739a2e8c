"""The optimizer service beside a real engine in virtual time: commands, settings, trials."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.optimizer.scenarios import World, play

from mavstream_protocol.optimizer import Objective, OptimizerSettings, PolicyChoice, TargetState
from mavstream_protocol.scheduling import SchedulerSettings
from mavstream_protocol.specification import Specification
from mavstream_server.engine.process.messages import GetTargetMetrics, ShedRows, WeighQuery
from mavstream_server.optimizer.change import CombinedChange
from mavstream_server.optimizer.service import InvalidOptimizer
from mavstream_server.scheduling.policies.amos import AdaptiveSelection
from mavstream_server.supervisor.engine_link import EngineRefused


def test_the_engine_gets_no_commands_while_no_query_has_targets(tmp_path: Path) -> None:
    async def scenario() -> None:
        with World(tmp_path) as world:
            await world.query("q", "default", {}, 10)
            world.engine.commands.clear()
            await world.seconds(3)
            assert world.engine.commands == []

    play(scenario)


def test_only_queries_with_targets_are_asked_for_in_few_commands(tmp_path: Path) -> None:
    async def scenario() -> None:
        with World(tmp_path) as world:
            for n in range(60):
                await world.query(f"q{n}", "default", {"latency": {"p95": "1s"}} if n % 2 else {}, 0)
            world.engine.commands.clear()
            await world.optimizing.round()
            (asked,) = world.engine.commands
            assert isinstance(asked, GetTargetMetrics)
            assert len(asked.ids) == 30

    play(scenario)


def test_settings_of_a_query_are_sent_again_when_it_restarts(tmp_path: Path) -> None:
    async def scenario() -> None:
        with World(tmp_path) as world:
            await world.query("q", "default", {"max_loss": "50%"}, 0)
            await world.optimizing.enactor.enact(CombinedChange((ShedRows("q", 0.5), WeighQuery("q", 4))))
            await world.engine.forget_query("q")
            await world.query("q", "default", {"max_loss": "50%"}, 0)
            await world.optimizing.round()
            metrics = (await world.engine.target_metrics(["q"]))["q"]
            assert (metrics.share, metrics.weight) == (0.5, 4)
            await world.optimizing.configure(OptimizerSettings(enabled=False))
            await world.optimizing.round()
            metrics = (await world.engine.target_metrics(["q"]))["q"]
            assert (metrics.share, metrics.weight) == (0.0, 1), "switched off, it undoes its actions"

    play(scenario)


def test_a_change_that_is_refused_halfway_is_reverted_and_recorded(tmp_path: Path) -> None:
    async def scenario() -> None:
        with World(tmp_path) as world:
            await world.query("there", "default", {"max_loss": "50%"}, 0)
            change = CombinedChange((ShedRows("there", 0.5), ShedRows("gone", 0.5)))
            with pytest.raises(EngineRefused, match="unknown query 'gone'"):
                await world.optimizing.enactor.enact(change)
            assert world.optimizing.enactor.shares == {}
            await world.optimizing.round()
            assert (await world.engine.target_metrics(["there"]))["there"].share == 0

    play(scenario)


async def until_a_policy_is_tried(world: World) -> None:
    """Let queries exceed their memory targets until another policy is on probation."""
    for n in range(3):
        await world.query(f"fat{n}", "default", {"memory": {"at_most": "20KB"}}, 400)
    world.rate = 1000
    while not world.decisions:
        await world.seconds(1)
        assert world.second < 30


def test_a_trial_waits_for_an_engine_that_is_down(tmp_path: Path) -> None:
    async def scenario() -> None:
        with World(tmp_path, SchedulerSettings(policy="rr")) as world:
            await until_a_policy_is_tried(world)
            world.engine.away = True
            await world.seconds(30)
            assert world.decisions == [("policy", "probation")]
            assert world.state("fat0", Objective.MEMORY) is TargetState.UNKNOWN
            world.engine.away = False
            await world.seconds(14)
            assert world.decisions == [("policy", "probation")]
            await world.seconds(3)
            assert world.decisions[0] == ("policy", "undone")

    play(scenario)


def test_a_policy_chosen_by_hand_ends_the_trial(tmp_path: Path) -> None:
    async def scenario() -> None:
        with World(tmp_path, SchedulerSettings(policy="rr")) as world:
            await until_a_policy_is_tried(world)
            chosen = SchedulerSettings(policy="fifo")
            await world.optimizing.overrule(lambda: world.engine.choose(chosen), "by hand")
            assert world.decisions == [("policy", "overruled")]
            assert world.policy == "fifo"
            assert world.optimizing.optimizer.on_probation is None

    play(scenario)


def test_amos_gets_another_specification_and_keeps_what_it_learned(tmp_path: Path) -> None:
    async def scenario() -> None:
        with World(tmp_path, SchedulerSettings(policy="amos")) as world:
            policy = world.engine.engine.policy
            memory = Specification.of(("queued_bytes", "minimise", 1.0))
            await world.optimizing.configure(
                OptimizerSettings(specification=memory, policy_choice=PolicyChoice.AMOS)
            )
            assert world.engine.engine.policy is policy, "it goes on"
            assert isinstance(policy, AdaptiveSelection)
            assert policy.specification == memory
            assert world.engine.current.options["specification"] == memory.model_dump(mode="json")
            await world.engine.choose(SchedulerSettings(policy="rr"))
            await world.query("fat", "default", {"memory": {"at_most": "20KB"}}, 1200)
            world.rate = 1000
            while not world.decisions:
                await world.seconds(1)
                assert world.second < 30
            assert world.policy == "amos", "ahead of the table"

    play(scenario)


def test_unknown_rules_are_refused_by_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        with World(tmp_path) as world:
            with pytest.raises(InvalidOptimizer) as caught:
                await world.optimizing.configure(OptimizerSettings(rules={"magic": False}))
            (item,) = caught.value.items
            assert item.pointer == "rules/magic"
            assert "the rules are: policy, rank, " in item.detail
            assert world.optimizing.settings == OptimizerSettings()

    play(scenario)
