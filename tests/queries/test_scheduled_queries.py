"""Scheduled queries, and changes of a query while it is scheduled, running or paused."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.running_server import PATIENCE, until
from tests.support.services.query_service import HOT, WINDOW_PLAN, Service, served, service

from mavstream_protocol import InvalidObject
from mavstream_protocol.instants import format_instant
from mavstream_protocol.optimizer import OptimizerSettings
from mavstream_protocol.wire.resources import ActualState, DesiredState, QueryChange, QueryInfo
from mavstream_server.core.errors import Conflict, WrongVersion
from mavstream_server.engine.process.messages import ShedRows
from mavstream_server.optimizer.config import OptimizerConfig
from mavstream_server.optimizer.service import OptimizerService
from mavstream_server.queries.views.qos import QosReports
from mavstream_server.supervisor.engine_link import EngineRefused
from mavstream_server.supervisor.scheduler_choice import SchedulerChoice
from mavstream_server.testing import ManualClock

Test = Callable[[Service], Coroutine[Any, Any, None]]
HOUR = 3_600_000_000


@pytest.fixture
def clock() -> ManualClock:
    """A manual clock that begins at the system time, which the engine uses."""
    return ManualClock(time.time_ns())


@pytest.fixture
def run(tmp_path: Path, clock: ManualClock) -> Callable[[Test], None]:
    return lambda test: served(test, tmp_path, clock=clock)


Run = Callable[[Test], None]


def in_hours(clock: ManualClock, hours: float) -> int:
    return clock.now() // 1000 + int(hours * HOUR)


def change(**values: Any) -> QueryChange:
    return QueryChange.model_validate(values)


async def register(made: Service, **values: Any) -> QueryInfo:
    return await made.queries.register({**HOT, **values})


async def state(made: Service, id_: str) -> ActualState:
    return (await made.queries.views.info(id_)).state


async def advance(made: Service, clock: ManualClock, hours: float) -> None:
    """Advance the clock and start the queries that are due."""
    clock.advance(seconds=hours * 3600)
    made.queries.start_times.tick()
    await asyncio.wait_for(made.queries.placement.settled(), PATIENCE)


def temps(rows: list[dict[str, Any]]) -> list[int]:
    return [row["temp"] for row in rows]


# Scheduled


def test_a_query_with_a_future_start_is_scheduled_and_not_in_the_engine(run: Run, clock: ManualClock) -> None:
    async def test(made: Service) -> None:
        info = await register(made, start_at=in_hours(clock, 1), plan=WINDOW_PLAN)
        assert (info.state, info.desired, info.epoch) == (ActualState.SCHEDULED, DesiredState.RUNNING, 0)
        await made.feed(30)
        assert (await made.link.engine_metrics()).ids == ()
        assert made.parts.readers.needed_position("readings") is None
        assert made.queries.users("readings") == [info.id]
        assert made.queries.registry.states() == {"scheduled": 1}
        assert [one.id for one in made.queries.registry.select(None, 9, state=ActualState.SCHEDULED)] == [
            info.id
        ]
        assert not made.queries.watched()
        assert not made.queries.class_sizes()

    run(test)


@pytest.mark.parametrize("from_", ["now", "earliest"])
def test_a_scheduled_query_reads_from_the_first_row_after_its_start(
    run: Run, clock: ManualClock, from_: str
) -> None:
    async def test(made: Service) -> None:
        info = await register(made, start_at=in_hours(clock, 1), **{"from": from_})
        await made.feed(31)
        clock.advance(seconds=3599)
        await made.feed(32)
        clock.advance(seconds=1)
        await made.feed(33)
        clock.advance(seconds=5)  # the timer is late: the engine seeks to the start time in the log
        await made.feed(34)
        await advance(made, clock, 0)
        await made.feed(35)
        assert temps(await made.answers(info.id, 3)) == [33, 34, 35]
        assert await state(made, info.id) is ActualState.RUNNING

    run(test)


def test_a_subscriber_from_before_the_start_gets_the_answers(run: Run, clock: ManualClock) -> None:
    async def test(made: Service) -> None:
        info = await register(made, start_at=in_hours(clock, 1))
        with made.subscription(info.id) as subscription:
            opened = await asyncio.wait_for(subscription.next(), PATIENCE)
            assert isinstance(opened, str)
            assert json.loads(opened)["type"] == "opened"
            await advance(made, clock, 1)
            await made.feed(33)
            rows = await asyncio.wait_for(subscription.next(), PATIENCE)
            assert isinstance(rows, str)
            assert temps(json.loads(rows)["rows"]) == [33]

    run(test)


def test_the_timer_of_the_server_starts_a_scheduled_query(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        info = await register(made, start_at=time.time_ns() // 1000 + 300_000)
        assert info.state is ActualState.SCHEDULED
        await until(lambda: made.queries.get(info.id).state is ActualState.RUNNING, "the start")
        assert time.time_ns() // 1000 >= info.spec.start_at  # type: ignore[operator]

    served(test, tmp_path)


def test_queries_start_in_the_order_of_their_times(run: Run, clock: ManualClock) -> None:
    async def test(made: Service) -> None:
        ids = [(await register(made, start_at=in_hours(clock, hours))).id for hours in (3, 1, 2)]
        running = []
        for _ in range(3):
            await advance(made, clock, 1)
            running.append([await state(made, id_) is ActualState.RUNNING for id_ in ids])
        assert running == [[False, True, False], [False, True, True], [True, True, True]]
        assert len(made.queries.start_times) == 0

    run(test)


def test_a_scheduled_query_stays_scheduled_when_the_server_restarts(
    tmp_path: Path, clock: ManualClock
) -> None:
    async def test() -> None:
        async with service(tmp_path, clock=clock) as first:
            soon = (await register(first, start_at=in_hours(clock, 1))).id
            late = (await register(first, start_at=in_hours(clock, 5))).id
            await first.feed(31)
            sequence = first.sequence
        clock.advance(seconds=2 * 3600)  # one is due while the server is down
        async with service(tmp_path, clock=clock) as second:
            second.sequence = sequence
            assert await state(second, soon) is ActualState.RUNNING
            assert await state(second, late) is ActualState.SCHEDULED
            await second.feed(32)
            assert temps(await second.answers(soon, 1)) == [32]
            await advance(second, clock, 3)
            assert await state(second, late) is ActualState.RUNNING

    asyncio.run(test())


def test_a_scheduled_query_stays_scheduled_when_the_engine_dies(run: Run, clock: ManualClock) -> None:
    async def test(made: Service) -> None:
        info = await register(made, start_at=in_hours(clock, 1))
        await made.kill_engine()
        assert await state(made, info.id) is ActualState.SCHEDULED
        assert (await made.link.engine_metrics()).ids == ()
        await advance(made, clock, 1)
        await made.feed(33)
        assert temps(await made.answers(info.id, 1)) == [33]

    run(test)


def test_without_an_engine_a_scheduled_query_starts_later_and_misses_nothing(
    tmp_path: Path, clock: ManualClock
) -> None:
    async def test() -> None:
        async with service(tmp_path, engine=False, clock=clock) as made:
            info = await register(made, start_at=in_hours(clock, 1))
            await made.feed(31)
            await advance(made, clock, 1)
            assert await state(made, info.id) is ActualState.STARTING
            assert made.parts.readers.needed_position("readings") == 1
            await made.feed(32)
            await made.link.start(made.queries)
            made.queries._place_all()
            await asyncio.wait_for(made.queries.placement.settled(), PATIENCE)
            assert temps(await made.answers(info.id, 1)) == [32]

    asyncio.run(test())


def test_a_scheduled_query_can_be_paused_stopped_and_removed(run: Run, clock: ManualClock) -> None:
    async def test(made: Service) -> None:
        paused, stopped, removed = [(await register(made, start_at=in_hours(clock, 1))).id for _ in range(3)]
        info = await made.queries.change(paused, change(state="paused"))
        assert (info.state, info.desired) == (ActualState.SCHEDULED, DesiredState.PAUSED)
        assert (await made.queries.change(stopped, change(state="stopped"))).state is ActualState.STOPPED
        await made.queries.remove(removed)
        await advance(made, clock, 2)
        assert await state(made, paused) is ActualState.PAUSED
        assert await state(made, stopped) is ActualState.STOPPED
        assert (await made.link.engine_metrics()).ids == (paused,)
        await made.queries.change(paused, change(state="running"))
        await made.feed(33)
        assert temps(await made.answers(paused, 1)) == [33]

    run(test)


# Changed times


def test_a_future_start_can_be_changed(run: Run, clock: ManualClock) -> None:
    async def test(made: Service) -> None:
        later, sooner = [(await register(made, start_at=in_hours(clock, 2))).id for _ in range(2)]
        moved = await made.queries.change(later, change(start_at=in_hours(clock, 4)))
        assert moved.spec.start_at == in_hours(clock, 4)
        await made.queries.change(sooner, change(start_at=format_instant(in_hours(clock, 1))))
        states = []
        for _ in range(4):
            await advance(made, clock, 1)
            states.append([await state(made, later), await state(made, sooner)])
        scheduled, running = ActualState.SCHEDULED, ActualState.RUNNING
        assert states == [[scheduled, running]] * 3 + [[running, running]]

    run(test)


@pytest.mark.parametrize("hours", [-1, None])
def test_a_start_that_is_moved_to_the_past_or_removed_starts_the_query_now(
    run: Run, clock: ManualClock, hours: float | None
) -> None:
    async def test(made: Service) -> None:
        info = await register(made, start_at=in_hours(clock, 2))
        await made.feed(31)
        start_at = None if hours is None else in_hours(clock, hours)
        changed = await made.queries.change(info.id, change(start_at=start_at))
        assert (changed.state, changed.spec.start_at) == (ActualState.RUNNING, start_at)
        await made.feed(32)
        assert temps(await made.answers(info.id, 1)) == [32]
        assert len(made.queries.start_times) == 0

    run(test)


def test_a_change_survives_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    async def test() -> None:
        values = {"start_at": in_hours(clock, 3), "stop_at": in_hours(clock, 9)}
        async with service(tmp_path, clock=clock) as first:
            id_ = (await register(first, start_at=in_hours(clock, 1))).id
            qos = {"latency": {"p95": "20ms"}}
            before = (await first.queries.change(id_, change(**values, qos=qos))).spec
        async with service(tmp_path, clock=clock) as second:
            info = await second.queries.views.info(id_)
            assert (info.state, info.spec) == (ActualState.SCHEDULED, before)
            assert (info.spec.start_at, info.spec.stop_at) == tuple(values.values())

    asyncio.run(test())


def test_the_start_of_a_running_query_cannot_be_changed(run: Run, clock: ManualClock) -> None:
    async def test(made: Service) -> None:
        info = await register(made)
        with pytest.raises(
            Conflict, match="is running: its start_at can be changed while it is scheduled"
        ) as e:
            await made.queries.change(info.id, change(start_at=in_hours(clock, 1)))
        assert e.value.code == "already_started"
        await made.queries.change(info.id, change(start_at=None))  # as it is
        await made.queries.change(info.id, change(state="stopped"))
        for values in ({"stop_at": in_hours(clock, 1)}, {"qos": {"max_loss": "1%"}}):
            with pytest.raises(Conflict, match="has ended"):
                await made.queries.change(info.id, change(**values))

    run(test)


def test_a_stop_before_the_start_is_refused_with_a_pointer(run: Run, clock: ManualClock) -> None:
    async def test(made: Service) -> None:
        info = await register(made, start_at=in_hours(clock, 2), stop_at=in_hours(clock, 3))
        for values in ({"stop_at": in_hours(clock, 2)}, {"start_at": in_hours(clock, 4)}):
            with pytest.raises(InvalidObject) as error:
                await made.queries.change(info.id, change(**values))
            assert [(one.pointer, one.code) for one in error.value.items] == [
                ("stop_at", "stop_before_start")
            ]
        assert made.queries.get(info.id).record.spec == info.spec
        both = {"start_at": in_hours(clock, 4), "stop_at": in_hours(clock, 5)}
        assert (await made.queries.change(info.id, change(**both))).spec.start_at == in_hours(clock, 4)

    run(test)


def test_the_stop_of_a_running_query_is_moved_exactly(run: Run, clock: ManualClock) -> None:
    async def test(made: Service) -> None:
        moved = (await register(made, stop_at=in_hours(clock, 3))).id
        freed = (await register(made, stop_at=in_hours(clock, 3))).id
        await made.feed(30)
        await made.queries.change(moved, change(stop_at=in_hours(clock, 2)))
        await made.queries.change(freed, change(stop_at=None))
        for temp in (31, 32, 33, 34):
            clock.advance(seconds=3600)
            await made.feed(temp)
        assert (await made.ended(moved)).state is ActualState.FINISHED
        assert temps(await made.answers(moved, 2)) == [30, 31]
        assert temps(await made.answers(freed, 5)) == [30, 31, 32, 33, 34]
        assert await state(made, freed) is ActualState.RUNNING

    run(test)


def test_a_stop_before_rows_that_were_read_is_refused_and_nothing_changes(
    run: Run, clock: ManualClock
) -> None:
    async def test(made: Service) -> None:
        info = await register(made)
        clock.advance(seconds=3600)
        await made.feed(31)
        await made.answers(info.id, 1)
        with pytest.raises(EngineRefused, match="has read stream 'readings' up to what arrived at") as error:
            await made.queries.change(info.id, change(stop_at=in_hours(clock, -0.5), qos={"max_loss": "1%"}))
        assert error.value.code == "stop_at_passed"
        record = made.queries.get(info.id).record
        assert (record.spec, record.version) == (info.spec, 1)

    run(test)


def test_a_change_for_another_version_has_no_effect(run: Run, clock: ManualClock) -> None:
    async def test(made: Service) -> None:
        info = await register(made, stop_at=in_hours(clock, 1))
        assert (
            await made.queries.change(info.id, change(qos={"max_loss": "1%"}), 1)
        ).spec.qos.max_loss == 0.01
        with pytest.raises(WrongVersion):
            await made.queries.change(info.id, change(stop_at=None), 1)
        clock.advance(seconds=3600)
        await made.feed(31)
        assert (await made.ended(info.id)).state is ActualState.FINISHED

    run(test)


# Targets


def test_changed_targets_are_monitored_reported_and_sent_to_the_engine(run: Run, clock: ManualClock) -> None:
    async def test(made: Service) -> None:
        info = await register(made, qos={"latency": {"p95": "50ms"}})
        choice = SchedulerChoice(made.catalog, made.settings, made.link)
        off = OptimizerConfig(OptimizerSettings(enabled=False))
        optimizing = OptimizerService(made.link, choice, made.queries, clock, off)
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
