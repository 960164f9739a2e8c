"""Changes of a query while it is scheduled, running or paused: its times and its targets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.services.query_service import Service, service
from tests.support.services.query_times import Run, advance, change, in_hours, register, state, temps

from mavstream_protocol import InvalidObject
from mavstream_protocol.instants import format_instant
from mavstream_protocol.optimizer import OptimizerSettings
from mavstream_protocol.wire.resources import ActualState
from mavstream_server.core.errors import Conflict, WrongVersion
from mavstream_server.engine.process.messages import ShedRows
from mavstream_server.optimizer.config import OptimizerConfig
from mavstream_server.optimizer.service import OptimizerService
from mavstream_server.queries.views.qos import QosReports
from mavstream_server.supervisor.engine_link import EngineRefused
from mavstream_server.supervisor.scheduler_choice import SchedulerChoice
from mavstream_server.testing import ManualClock

pytest_plugins = ("tests.support.services.clock_fixtures",)


# Times


def test_a_future_start_can_be_changed(run: Run, wall_clock: ManualClock) -> None:
    async def test(made: Service) -> None:
        later, sooner = [(await register(made, start_at=in_hours(wall_clock, 2))).id for _ in range(2)]
        moved = await made.queries.change(later, change(start_at=in_hours(wall_clock, 4)))
        assert moved.spec.start_at == in_hours(wall_clock, 4)
        await made.queries.change(sooner, change(start_at=format_instant(in_hours(wall_clock, 1))))
        states = []
        for _ in range(4):
            await advance(made, wall_clock, 1)
            states.append([await state(made, later), await state(made, sooner)])
        scheduled, running = ActualState.SCHEDULED, ActualState.RUNNING
        assert states == [[scheduled, running]] * 3 + [[running, running]]

    run(test)


@pytest.mark.parametrize("hours", [-1, None])
def test_a_start_that_is_moved_to_the_past_or_removed_starts_the_query_now(
    run: Run, wall_clock: ManualClock, hours: float | None
) -> None:
    async def test(made: Service) -> None:
        info = await register(made, start_at=in_hours(wall_clock, 2))
        await made.feed(31)
        start_at = None if hours is None else in_hours(wall_clock, hours)
        changed = await made.queries.change(info.id, change(start_at=start_at))
        assert (changed.state, changed.spec.start_at) == (ActualState.RUNNING, start_at)
        await made.feed(32)
        assert temps(await made.answers(info.id, 1)) == [32]
        assert len(made.queries.start_times) == 0

    run(test)


def test_a_change_survives_a_restart(tmp_path: Path, wall_clock: ManualClock) -> None:
    async def test() -> None:
        values = {"start_at": in_hours(wall_clock, 3), "stop_at": in_hours(wall_clock, 9)}
        async with service(tmp_path, clock=wall_clock) as first:
            id_ = (await register(first, start_at=in_hours(wall_clock, 1))).id
            qos = {"latency": {"p95": "20ms"}}
            before = (await first.queries.change(id_, change(**values, qos=qos))).spec
        async with service(tmp_path, clock=wall_clock) as second:
            info = await second.queries.views.info(id_)
            assert (info.state, info.spec) == (ActualState.SCHEDULED, before)
            assert (info.spec.start_at, info.spec.stop_at) == tuple(values.values())

    asyncio.run(test())


def test_the_start_of_a_running_query_cannot_be_changed(run: Run, wall_clock: ManualClock) -> None:
    async def test(made: Service) -> None:
        info = await register(made)
        with pytest.raises(
            Conflict, match="is running: its start_at can be changed while it is scheduled"
        ) as e:
            await made.queries.change(info.id, change(start_at=in_hours(wall_clock, 1)))
        assert e.value.code == "already_started"
        await made.queries.change(info.id, change(start_at=None))  # as it is
        await made.queries.change(info.id, change(state="stopped"))
        for values in ({"stop_at": in_hours(wall_clock, 1)}, {"qos": {"max_loss": "1%"}}):
            with pytest.raises(Conflict, match="has ended"):
                await made.queries.change(info.id, change(**values))

    run(test)


def test_a_stop_before_the_start_is_refused_with_a_pointer(run: Run, wall_clock: ManualClock) -> None:
    async def test(made: Service) -> None:
        info = await register(made, start_at=in_hours(wall_clock, 2), stop_at=in_hours(wall_clock, 3))
        for values in ({"stop_at": in_hours(wall_clock, 2)}, {"start_at": in_hours(wall_clock, 4)}):
            with pytest.raises(InvalidObject) as error:
                await made.queries.change(info.id, change(**values))
            assert [(one.pointer, one.code) for one in error.value.items] == [
                ("stop_at", "stop_before_start")
            ]
        assert made.queries.get(info.id).record.spec == info.spec
        both = {"start_at": in_hours(wall_clock, 4), "stop_at": in_hours(wall_clock, 5)}
        assert (await made.queries.change(info.id, change(**both))).spec.start_at == in_hours(wall_clock, 4)

    run(test)


def test_the_stop_of_a_running_query_is_moved_exactly(run: Run, wall_clock: ManualClock) -> None:
    async def test(made: Service) -> None:
        moved = (await register(made, stop_at=in_hours(wall_clock, 3))).id
        freed = (await register(made, stop_at=in_hours(wall_clock, 3))).id
        await made.feed(30)
        await made.queries.change(moved, change(stop_at=in_hours(wall_clock, 2)))
        await made.queries.change(freed, change(stop_at=None))
        for temp in (31, 32, 33, 34):
            wall_clock.advance(seconds=3600)
            await made.feed(temp)
        assert (await made.ended(moved)).state is ActualState.FINISHED
        assert temps(await made.answers(moved, 2)) == [30, 31]
        assert temps(await made.answers(freed, 5)) == [30, 31, 32, 33, 34]
        assert await state(made, freed) is ActualState.RUNNING

    run(test)


def test_a_stop_before_rows_that_were_read_is_refused_and_nothing_changes(
    run: Run, wall_clock: ManualClock
) -> None:
    async def test(made: Service) -> None:
        info = await register(made)
        wall_clock.advance(seconds=3600)
        await made.feed(31)
        await made.answers(info.id, 1)
        with pytest.raises(EngineRefused, match="has read stream 'readings' up to what arrived at") as error:
            await made.queries.change(
                info.id, change(stop_at=in_hours(wall_clock, -0.5), qos={"max_loss": "1%"})
            )
        assert error.value.code == "stop_at_passed"
        record = made.queries.get(info.id).record
        assert (record.spec, record.version) == (info.spec, 1)

    run(test)


def test_a_change_for_another_version_has_no_effect(run: Run, wall_clock: ManualClock) -> None:
    async def test(made: Service) -> None:
        info = await register(made, stop_at=in_hours(wall_clock, 1))
        assert (
            await made.queries.change(info.id, change(qos={"max_loss": "1%"}), 1)
        ).spec.qos.max_loss == 0.01
        with pytest.raises(WrongVersion):
            await made.queries.change(info.id, change(stop_at=None), 1)
        wall_clock.advance(seconds=3600)
        await made.feed(31)
        assert (await made.ended(info.id)).state is ActualState.FINISHED

    run(test)


# Targets


def test_changed_targets_are_monitored_reported_and_sent_to_the_engine(
    run: Run, wall_clock: ManualClock
) -> None:
    async def test(made: Service) -> None:
        info = await register(made, qos={"latency": {"p95": "50ms"}})
        choice = SchedulerChoice(made.catalog, made.settings, made.link)
        off = OptimizerConfig(OptimizerSettings(enabled=False))
        optimizing = OptimizerService(made.link, choice, made.queries, wall_clock, off)
        reports, query = QosReports(optimizing), made.queries.get(info.id)

        def targets() -> list[tuple[str, float]]:
            return [(one.objective.value, one.target) for one in reports.report(query, None).targets]

        await optimizing.round()
        assert targets() == [("latency", 50.0)]
        qos = {"latency": {"p95": "4ms"}, "memory": {"at_most": "1MB"}, "max_loss": "20%"}
        await made.queries.change(info.id, change(qos={**qos, "worth": {"readings": "temp"}}))
        assert targets() == [("latency", 4.0), ("memory", 1e6)]
        await optimizing.round()
        assert targets() == [("latency", 4.0), ("memory", 1e6)]
        await optimizing.enactor.enact(ShedRows(info.id, 0.2))
        await made.queries.change(info.id, change(qos={**qos, "max_loss": "5%"}))
        await optimizing.round()
        assert (await made.link.target_metrics([info.id]))[info.id].share == 0.05
        await made.queries.change(info.id, change(qos=None))
        assert (targets(), list(made.queries.watched())) == ([], [])
        assert (await made.link.target_metrics([info.id]))[info.id].share == 0

    run(test)


def test_the_error_for_targets_that_do_not_fit_the_plan_has_a_pointer(run: Run) -> None:
    async def test(made: Service) -> None:
        info = await register(made)
        with pytest.raises(InvalidObject) as error:
            await made.queries.change(info.id, change(qos={"worth": {"readings": "nothing"}}))
        assert [one.pointer for one in error.value.items] == ["qos/worth/readings"]
        assert made.queries.get(info.id).record.version == 1

    run(test)
