"""Scheduled queries: those whose start lies in the future."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from tests.support.servers.running_server import PATIENCE, until
from tests.support.services.query_service import HOT, WINDOW_PLAN, Service, served, service
from tests.support.services.query_times import Run, advance, change, in_hours, register, state, temps

from mavstream_protocol.wire.resources import ActualState, DesiredState
from mavstream_server.core.errors import Conflict
from mavstream_server.testing import ManualClock

pytest_plugins = ("tests.support.services.clock_fixtures",)


def test_a_query_with_a_future_start_is_scheduled_and_not_in_the_engine(
    run: Run, wall_clock: ManualClock
) -> None:
    async def test(made: Service) -> None:
        info = await register(made, start_at=in_hours(wall_clock, 1), plan=WINDOW_PLAN)
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
    run: Run, wall_clock: ManualClock, from_: str
) -> None:
    async def test(made: Service) -> None:
        info = await register(made, start_at=in_hours(wall_clock, 1), **{"from": from_})
        await made.feed(31)
        wall_clock.advance(seconds=3599)
        await made.feed(32)
        wall_clock.advance(seconds=1)
        await made.feed(33)
        wall_clock.advance(seconds=5)  # the timer is late: the engine seeks to the start time in the log
        await made.feed(34)
        await advance(made, wall_clock, 0)
        await made.feed(35)
        assert temps(await made.answers(info.id, 3)) == [33, 34, 35]
        assert await state(made, info.id) is ActualState.RUNNING

    run(test)


def test_a_subscriber_from_before_the_start_gets_the_answers(run: Run, wall_clock: ManualClock) -> None:
    async def test(made: Service) -> None:
        info = await register(made, start_at=in_hours(wall_clock, 1))
        with made.subscription(info.id) as subscription:
            opened = await asyncio.wait_for(subscription.next(), PATIENCE)
            assert isinstance(opened, str)
            assert json.loads(opened)["type"] == "opened"
            await advance(made, wall_clock, 1)
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
        assert info.spec.start_at is not None
        assert time.time_ns() // 1000 >= info.spec.start_at

    served(test, tmp_path)


def test_queries_start_in_the_order_of_their_times(run: Run, wall_clock: ManualClock) -> None:
    async def test(made: Service) -> None:
        ids = [(await register(made, start_at=in_hours(wall_clock, hours))).id for hours in (3, 1, 2)]
        running = []
        for _ in range(3):
            await advance(made, wall_clock, 1)
            running.append([await state(made, id_) is ActualState.RUNNING for id_ in ids])
        assert running == [[False, True, False], [False, True, True], [True, True, True]]
        assert len(made.queries.start_times) == 0

    run(test)


def test_a_scheduled_query_stays_scheduled_when_the_server_restarts(
    tmp_path: Path, wall_clock: ManualClock
) -> None:
    async def test() -> None:
        async with service(tmp_path, clock=wall_clock) as first:
            soon = (await register(first, start_at=in_hours(wall_clock, 1))).id
            late = (await register(first, start_at=in_hours(wall_clock, 5))).id
            await first.feed(31)
            sequence = first.sequence
        wall_clock.advance(seconds=2 * 3600)  # one is due while the server is down
        async with service(tmp_path, clock=wall_clock) as second:
            second.sequence = sequence
            assert await state(second, soon) is ActualState.RUNNING
            assert await state(second, late) is ActualState.SCHEDULED
            await second.feed(32)
            assert temps(await second.answers(soon, 1)) == [32]
            await advance(second, wall_clock, 3)
            assert await state(second, late) is ActualState.RUNNING

    asyncio.run(test())


def test_a_scheduled_query_stays_scheduled_when_the_engine_dies(run: Run, wall_clock: ManualClock) -> None:
    async def test(made: Service) -> None:
        info = await register(made, start_at=in_hours(wall_clock, 1))
        await made.kill_engine()
        assert await state(made, info.id) is ActualState.SCHEDULED
        assert (await made.link.engine_metrics()).ids == ()
        await advance(made, wall_clock, 1)
        await made.feed(33)
        assert temps(await made.answers(info.id, 1)) == [33]

    run(test)


def test_without_an_engine_a_scheduled_query_starts_later_and_misses_nothing(
    tmp_path: Path, wall_clock: ManualClock
) -> None:
    async def test() -> None:
        async with service(tmp_path, engine=False, clock=wall_clock) as made:
            info = await register(made, start_at=in_hours(wall_clock, 1))
            await made.feed(31)
            await advance(made, wall_clock, 1)
            assert await state(made, info.id) is ActualState.STARTING
            assert made.parts.readers.needed_position("readings") == 1
            await made.feed(32)
            await made.link.start(made.queries)
            made.queries._place_all()
            await asyncio.wait_for(made.queries.placement.settled(), PATIENCE)
            assert temps(await made.answers(info.id, 1)) == [32]

    asyncio.run(test())


def test_a_scheduled_query_can_be_replaced_by_any_other(run: Run, wall_clock: ManualClock) -> None:
    async def test(made: Service) -> None:
        info = await register(made, name="mine", start_at=in_hours(wall_clock, 1))
        with made.subscription(info.id) as subscription:
            assert json.loads(await subscription.next() or "")["type"] == "opened"
            once = {"plan": WINDOW_PLAN, "mode": "one_time", "derive": True, "from": "earliest"}
            changed, created = await made.queries.put("mine", {**once, "start_at": in_hours(wall_clock, 2)})
            assert (created, changed.id, changed.state) == (False, info.id, ActualState.SCHEDULED)
            assert (changed.spec.mode, changed.spec.from_) == ("one_time", "earliest")
            told = json.loads(await asyncio.wait_for(subscription.next(), PATIENCE) or "")
            assert (told["type"], told["fields"][0]["name"]) == ("replaced", changed.fields[0].name)
        await advance(made, wall_clock, 1)
        assert await state(made, info.id) is ActualState.SCHEDULED
        await made.queries.put("mine", {**HOT, "start_at": in_hours(wall_clock, -0.5)})
        await asyncio.wait_for(made.queries.placement.settled(), PATIENCE)
        assert await state(made, info.id) is ActualState.RUNNING
        await made.feed(33)
        assert temps(await made.answers(info.id, 1)) == [33]
        with pytest.raises(Conflict, match="a start time can be changed while the query is scheduled"):
            await made.queries.put("mine", {**HOT, "start_at": in_hours(wall_clock, 1)})

    run(test)


def test_a_scheduled_query_can_be_paused_stopped_and_removed(run: Run, wall_clock: ManualClock) -> None:
    async def test(made: Service) -> None:
        paused, stopped, removed = [
            (await register(made, start_at=in_hours(wall_clock, 1))).id for _ in range(3)
        ]
        info = await made.queries.change(paused, change(state="paused"))
        assert (info.state, info.desired) == (ActualState.SCHEDULED, DesiredState.PAUSED)
        assert (await made.queries.change(stopped, change(state="stopped"))).state is ActualState.STOPPED
        await made.queries.remove(removed)
        await advance(made, wall_clock, 2)
        assert await state(made, paused) is ActualState.PAUSED
        assert await state(made, stopped) is ActualState.STOPPED
        assert (await made.link.engine_metrics()).ids == (paused,)
        await made.queries.change(paused, change(state="running"))
        await made.feed(33)
        assert temps(await made.answers(paused, 1)) == [33]

    run(test)
