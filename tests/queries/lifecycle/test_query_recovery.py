"""Recovery of queries after a crash of the engine or of the server, the most important ones first."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.support.servers.running_server import PATIENCE, until
from tests.support.services.query_service import HOT, WINDOW_PLAN, Service, served, service

from mavstream_protocol import QueryClass
from mavstream_protocol.wire.resources import ActualState, DesiredState, QueryChange
from mavstream_server.results.subscription import LATEST


def test_after_a_crash_of_the_engine_subscriptions_continue_in_the_same_epoch(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        hot = (await made.queries.register(HOT)).id
        paused = (await made.queries.register(HOT)).id
        stopped = (await made.queries.register(HOT)).id
        await made.queries.change(paused, QueryChange(state=DesiredState.PAUSED))
        await made.queries.change(stopped, QueryChange(state=DesiredState.STOPPED))
        await made.feed(30)
        await made.answers(hot, 1)
        with made.subscription(hot, LATEST) as subscription:
            await subscription.next()
            await made.kill_engine()
            await made.feed(31)
            rows = json.loads(await asyncio.wait_for(subscription.next(), PATIENCE) or "")
            assert (rows["offset"], rows["epoch"], rows["rows"][0]["temp"]) == (1, 1, 31)
        states = [made.queries.get(id_).state for id_ in (hot, paused, stopped)]
        assert states == [ActualState.RUNNING, ActualState.PAUSED, ActualState.STOPPED]
        assert [made.queries.get(id_).epoch for id_ in (hot, paused, stopped)] == [1, 1, 1]

    served(test, tmp_path)


def test_without_a_usable_checkpoint_a_query_continues_with_a_new_epoch(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        hot = (await made.queries.register(HOT)).id
        await made.feed(30)
        await made.answers(hot, 1)
        for file in (tmp_path / "checkpoints" / hot).iterdir():
            file.write_bytes(b"garbled")
        with made.subscription(hot, LATEST) as subscription:
            await subscription.next()
            await made.kill_engine()
            message = await asyncio.wait_for(subscription.next(), PATIENCE)
            gap = json.loads(message or "")
            assert (gap["type"], gap["reason"], gap["epoch"]) == ("gap", "restart", 2)
            await made.feed(31)
            rows = json.loads(await asyncio.wait_for(subscription.next(), PATIENCE) or "")
            assert (rows["offset"], rows["epoch"], rows["rows"][0]["temp"]) == (1, 2, 31)

    served(test, tmp_path)


def test_a_query_registered_without_an_engine_starts_later_and_misses_no_row(tmp_path: Path) -> None:
    async def test() -> None:
        async with service(tmp_path, engine=False) as made:
            info = await made.queries.register(HOT)
            assert info.state is ActualState.STARTING
            assert made.parts.readers.needed_position("readings") == 0
            assert made.parts.readers.held_by("readings") == info.id
            await made.feed(33)
            await made.link.start(made.queries)
            made.queries.engine_restarted()
            assert [row["temp"] for row in await made.answers(info.id, 1)] == [33]
            assert made.queries.get(info.id).epoch == 1

    asyncio.run(test())


def test_after_a_restart_of_the_server_all_queries_are_restored(tmp_path: Path) -> None:
    async def first() -> tuple[str, str, str]:
        async with service(tmp_path) as made:
            hot = (await made.queries.register(HOT)).id
            paused = (await made.queries.register(HOT)).id
            ended = (await made.queries.register({"name": "means", "plan": WINDOW_PLAN})).id
            await made.feed(30, 31)
            await made.answers(hot, 2)
            await made.answers(ended, 1)
            await made.queries.change(paused, QueryChange(state=DesiredState.PAUSED))
            await made.queries.change(ended, QueryChange(state=DesiredState.STOPPED))
            return hot, paused, ended

    async def second(hot: str, paused: str, ended: str) -> None:
        async with service(tmp_path) as made:
            made.sequence = 1
            assert (await made.queries.views.info(hot)).state is ActualState.RUNNING
            assert (await made.queries.views.info(hot)).epoch == 1
            assert (await made.queries.views.info(paused)).state is ActualState.PAUSED
            info = await made.queries.views.info(ended)
            assert info.state is ActualState.STOPPED
            assert info.results == 1
            assert {field.name for field in info.fields} == {"room", "n", "window_start", "window_end"}
            assert [row["n"] for row in await made.answers(ended, 1)] == [1]
            await made.feed(32)
            assert [row["temp"] for row in await made.answers(hot, 3)] == [30, 31, 32]
            assert (await made.queries.views.plan(ended)).paths == (("in", "mean"),)

    asyncio.run(second(*asyncio.run(first())))


def test_queries_of_higher_classes_are_restored_first(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        made.catalog.put_class(QueryClass(name="alarms", priority=6))
        classes = ("default", "alarms") * 30
        ids = [(await made.queries.register({**HOT, "class": name})).id for name in classes]
        await made.kill_engine()
        # An engine names its queries in the order in which it got them.
        assert (await made.link.engine_metrics()).ids == (*ids[1::2], *ids[::2])
        assert made.queries.registry.states() == {"running": 60}
        await made.feed(30)
        for id_ in ids:
            assert [row["temp"] for row in await made.answers(id_, 1)] == [30]

    served(test, tmp_path)


def test_a_query_whose_log_cannot_be_created_waits_and_blocks_no_other(tmp_path: Path) -> None:
    async def register() -> list[str]:
        async with service(tmp_path, engine=False) as made:
            return [(await made.queries.register(HOT)).id for _ in range(3)]

    async def start(first: str, *others: str) -> None:
        made = Service(tmp_path)
        in_the_way = made.settings.results_directory / first
        in_the_way.touch()
        try:
            await made.link.start(made.queries)
            await made.queries.start()
            await until(lambda: made.queries.registry.states().get("running") == 2, "the other queries")
            assert made.queries.get(first).state is ActualState.STARTING
            in_the_way.unlink()
            await asyncio.wait_for(made.queries.placement.settled(), PATIENCE)
            assert made.queries.registry.states() == {"running": 3}
        finally:
            await made.close()

    asyncio.run(start(*asyncio.run(register())))


def test_a_query_removed_while_it_waits_for_an_engine_blocks_no_other(tmp_path: Path) -> None:
    async def test() -> None:
        async with service(tmp_path, engine=False) as made:
            first, second = [(await made.queries.register(HOT)).id for _ in range(2)]
            await made.link.start(made.queries)
            made.queries.engine_restarted()
            await made.queries.remove(first)
            await asyncio.wait_for(made.queries.placement.settled(), PATIENCE)
            assert (await made.link.engine_metrics()).ids == (second,)
            assert made.queries.registry.states() == {"running": 1}

    asyncio.run(test())
