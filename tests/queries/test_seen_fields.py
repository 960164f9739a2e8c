"""Registered queries keep the columns that they see, over restarts of engine and server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.support.services.query_service import HOT, HOT_PLAN, READINGS, Service, served, service

from mavstream_protocol.streams import StreamSpec
from mavstream_protocol.wire.stream_change import StreamChange

WET = StreamChange.model_validate({"add_fields": [{"name": "wet", "type": "bool", "nullable": True}]})
OLD, NEW = ("at", "room", "temp"), ("at", "room", "temp", "wet")


def columns(made: Service, id_: str) -> tuple[str, ...]:
    return made.queries.get(id_).schema.names


def test_a_query_keeps_its_columns_and_new_ones_see_all(tmp_path: Path) -> None:
    async def run() -> None:
        async with service(tmp_path) as made:
            old = (await made.queries.register({"name": "old", "from": "earliest", **HOT})).id
            await made.feed(25, 10, 30)
            await made.answers(old, 2)
            before = made.queries.get(old).epoch
            made.streams.change("readings", WET)
            new = (await made.queries.register({"name": "new", "from": "earliest", **HOT})).id
            await made.feed(40)
            rows = await made.answers(old, 3)
            assert [(row["temp"], "wet" in row) for row in rows] == [(25, False), (30, False), (40, False)]
            rows = await made.answers(new, 3)
            assert [(row["temp"], row["wet"]) for row in rows] == [(25, None), (30, None), (40, None)]
            await made.kill_engine()
            await made.feed(50)
            assert len(await made.answers(old, 4)) == 4
            assert made.queries.get(old).epoch == before, "it went on from its checkpoint"
            assert (columns(made, old), columns(made, new)) == (OLD, NEW)
        async with service(tmp_path) as made:
            assert (columns(made, old), columns(made, new)) == (OLD, NEW)
            made.sequence = 3
            await made.feed(60)
            assert [row["temp"] for row in await made.answers(old, 5)] == [25, 30, 40, 50, 60]
            assert [row["temp"] for row in await made.answers(new, 5)] == [25, 30, 40, 50, 60]
            assert made.queries.get(old).epoch == before
            await made.queries.remove(old)
            again = await made.queries.register({"name": "old", **HOT})
            assert columns(made, again.id) == NEW

    asyncio.run(run())


def test_the_same_plan_put_again_changes_nothing_and_another_one_keeps_the_columns(tmp_path: Path) -> None:
    other: dict[str, Any] = {
        "root": "hot",
        "nodes": {
            "in": {"op": "source", "stream": "readings"},
            "warm": {"op": "select", "input": "in", "where": "temp > 15 AND wet IS NULL"},
            "hot": {"op": "project", "input": "warm", "compute": {name: name for name in OLD}},
        },
    }

    async def test(made: Service) -> None:
        old = (await made.queries.register({"name": "old", "from": "earliest", **HOT})).id
        await made.feed(25)
        await made.answers(old, 1)
        made.streams.change("readings", WET)
        info, created = await made.queries.put("old", {"name": "old", **HOT})
        assert (info.id, created, columns(made, old)) == (old, False, OLD)
        wider = {
            **HOT_PLAN,
            "nodes": {**HOT_PLAN["nodes"], "hot": {**HOT_PLAN["nodes"]["hot"], "where": "temp > 1"}},
        }
        await made.queries.put("old", {"name": "old", "plan": wider})
        assert columns(made, old) == (*OLD, "wet")
        await made.queries.put("old", {"name": "old", "plan": other})
        await made.feed(18)
        rows = await made.answers(old, 2, after=0)
        assert [row["temp"] for row in rows] == [18], "in the results of the plan that replaced the first"
        assert made.catalog.seen_fields.of(old) == {"readings": 4}
        await made.kill_engine()
        await made.feed(19)
        assert [row["temp"] for row in await made.answers(old, 3, after=0)] == [18, 19]

    served(test, tmp_path)


def test_readers_of_results_are_not_affected(tmp_path: Path) -> None:
    above = {"root": "in", "nodes": {"in": {"op": "source", "query": "below"}}}

    async def run() -> None:
        async with service(tmp_path) as made:
            await made.queries.register({"name": "below", **HOT})
            top = (await made.queries.register({"name": "above", "plan": above})).id
            made.streams.change("readings", WET)
            await made.feed(25)
            assert len(await made.answers(top, 1)) == 1
        async with service(tmp_path) as made:
            assert (columns(made, top), columns(made, "below")) == (OLD, OLD)
            made.sequence = 1
            await made.feed(26)
            assert len(await made.answers(top, 2)) == 2

    asyncio.run(run())


def test_a_stream_that_is_created_again_hides_nothing(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        id_ = (await made.queries.register({"name": "old", **HOT})).id
        made.streams.change("readings", WET)
        assert made.catalog.seen_fields.of(id_) == {"readings": 3}
        await made.queries.remove(id_)
        assert made.catalog.seen_fields.of(id_) == {}
        made.streams.remove("readings")
        made.streams.create(StreamSpec.model_validate(READINGS))

    served(test, tmp_path, engine=False)
