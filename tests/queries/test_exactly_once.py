"""Every answer exactly once, in one epoch, while the engine is killed again and again under load."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.running_server import PATIENCE, until
from tests.support.services.query_service import HOT, READINGS, Service, served, service

from mavstream_protocol import StreamSpec
from mavstream_protocol.tuples import decode_rows
from mavstream_protocol.wire.resources import ActualState, DesiredState, QueryChange

DOORS = {**READINGS, "name": "doors"}
COUNTS = {
    "root": "n",
    "nodes": {
        "in": {"op": "source", "stream": "readings"},
        "n": {
            "op": "aggregate",
            "input": "in",
            "by": ["room"],
            "window": {"kind": "tumbling", "size": "1s", "partial": True},
            "compute": {"n": "count(*)", "total": "sum(temp)"},
        },
    },
}
PAIRS = {
    "root": "pairs",
    "nodes": {
        "left": {"op": "source", "stream": "readings"},
        "right": {"op": "source", "stream": "doors"},
        "pairs": {
            "op": "join",
            "left": "left",
            "right": "right",
            "on": [["temp", "temp"]],
            "within": "1ms",
            "compute": {"left": "l.temp", "right": "r.temp"},
        },
    },
}
BOTH = {
    "root": "n",
    "nodes": {
        "a": {"op": "source", "stream": "readings"},
        "b": {"op": "source", "stream": "doors"},
        "all": {"op": "union", "inputs": ["a", "b"]},
        "n": {
            "op": "aggregate",
            "input": "all",
            "by": ["room"],
            "window": {"kind": "hopping", "size": "2s", "hop": "1s", "partial": True},
            "compute": {"n": "count(*)"},
        },
    },
}
ABOVE = {
    "root": "n",
    "nodes": {
        "in": {"op": "source", "query": "below"},
        "n": {
            "op": "aggregate",
            "input": "in",
            "window": {"kind": "tumbling", "size": "3s", "partial": True},
            "compute": {"n": "sum(n)", "windows": "count(*)"},
        },
    },
}
ROWS, FRAMES, KILLS = 50, 120, 5


class Feed:
    """Appends frames of rows, a row every 10 ms of event time, with ever larger temperatures."""

    def __init__(self, made: Service) -> None:
        self._made = made
        self.frames = 0

    async def send(self) -> None:
        start = self.frames * ROWS
        self.frames += 1
        rows = [{"at": n * 10_000, "room": f"r{n % 3}", "temp": n} for n in range(start, start + ROWS)]
        for stream in ("readings", "doors"):
            batch = decode_rows(self._made.streams.spec(stream).schema(), rows)
            await self._made.streams.enqueuer.ingest("tests", stream, self.frames, batch, 1000)

    @property
    def rows(self) -> int:
        return self.frames * ROWS


async def read_all(made: Service, id_: str, seen: list[dict[str, Any]]) -> None:
    """Subscribe for good, and collect what arrives."""
    with made.subscription(id_) as subscription:
        while (message := await subscription.next()) is not None:
            parsed = json.loads(message)
            if parsed["type"] in ("opened", "closed"):
                continue
            assert parsed["type"] == "rows", message[:200]
            assert parsed["epoch"] == 1
            assert parsed["offset"] == len(seen)
            seen.extend(parsed["rows"])


def test_every_answer_is_delivered_once_however_often_the_engine_is_killed(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        made.streams.create(StreamSpec.model_validate(DOORS))
        plans = {"counts": COUNTS, "pairs": PAIRS, "both": BOTH}
        specs = [HOT, HOT, *({"name": name, "plan": plan} for name, plan in plans.items())]
        specs += [{"name": "below", "plan": COUNTS}, {"name": "above", "plan": ABOVE}]
        ids = [(await made.queries.register(spec)).id for spec in specs]
        seen: dict[str, list[dict[str, Any]]] = {id_: [] for id_ in ids}
        readers = [asyncio.create_task(read_all(made, id_, seen[id_])) for id_ in ids]
        feed, killed = Feed(made), 0
        while feed.frames < FRAMES:
            await feed.send()
            if feed.frames % (FRAMES // KILLS) == 0 and made.link.pid is not None:
                os.kill(made.link.pid, signal.SIGKILL)
                killed += 1
                await until(lambda count=killed: made.link.restarts >= count, "another engine")
        for stream in ("readings", "doors"):
            made.streams.complete(stream)
        for id_ in ids:
            info = await made.ended(id_)
            assert (info.state, info.epoch) == (ActualState.FINISHED, 1)
        await asyncio.wait_for(asyncio.gather(*readers), PATIENCE)
        hot, again, counts, pairs, both, _, above = (seen[id_] for id_ in ids)
        expected = Counter(range(21, feed.rows))
        assert killed == KILLS
        assert Counter(row["temp"] for row in hot) == expected
        assert Counter(row["temp"] for row in again) == expected
        assert Counter(row["left"] for row in pairs) == Counter(range(feed.rows))
        assert sum(row["n"] for row in counts) == feed.rows
        assert sum(row["total"] for row in counts) == sum(range(feed.rows))
        assert len({(row["room"], row["window_start"]) for row in counts}) == len(counts)
        assert sum(row["n"] for row in both) == 4 * feed.rows
        assert len({(row["room"], row["window_start"]) for row in both}) == len(both)

        assert sum(row["n"] for row in above) == feed.rows
        assert sum(row["windows"] for row in above) == len(counts)
        assert len({row["window_start"] for row in above}) == len(above)

    served(test, tmp_path)


def test_a_pause_and_its_end_are_kept_when_the_engine_is_killed(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        hot = (await made.queries.register(HOT)).id
        await made.feed(30)
        await made.answers(hot, 1)
        await made.queries.change(hot, QueryChange(state=DesiredState.PAUSED))
        await made.feed(31)
        await made.kill_engine()
        await made.feed(32)
        await made.queries.change(hot, QueryChange(state=DesiredState.RUNNING))
        await made.kill_engine()
        await made.feed(33)
        assert [row["temp"] for row in await made.answers(hot, 2)] == [30, 33]
        assert made.queries.get(hot).epoch == 1

    served(test, tmp_path)


def test_a_query_that_is_resumed_without_an_engine_goes_on_with_the_next_rows(tmp_path: Path) -> None:
    async def first() -> str:
        async with service(tmp_path) as made:
            hot = (await made.queries.register(HOT)).id
            await made.feed(30)
            await made.answers(hot, 1)
            await made.queries.change(hot, QueryChange(state=DesiredState.PAUSED))
            await made.feed(31)
            assert made.link.pid is not None
            os.kill(made.link.pid, signal.SIGKILL)
            await until(lambda: not made.link.ready, "the death of the engine")
            await made.queries.change(hot, QueryChange(state=DesiredState.RUNNING))
            await made.feed(32)
            return hot

    async def second(hot: str) -> None:
        async with service(tmp_path) as made:
            made.sequence = 3
            await made.feed(33)
            assert [row["temp"] for row in await made.answers(hot, 3)] == [30, 32, 33]

    asyncio.run(second(asyncio.run(first())))


def test_a_query_whose_first_engine_died_before_it_began_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def first() -> str:
        async with service(tmp_path) as made:
            await made.feed(30, 31)
            hot = (await made.queries.register({**HOT, "from": "earliest"})).id
            await until(lambda: made.link.restarts > 0, "the death of the engine")
            return hot

    async def second(hot: str) -> None:
        async with service(tmp_path) as made:
            assert [row["temp"] for row in await made.answers(hot, 2)] == [30, 31]

    monkeypatch.setenv("MAVSTREAM_FAILPOINTS", "engine:checkpoint.write.before=kill")
    hot = asyncio.run(first())
    monkeypatch.delenv("MAVSTREAM_FAILPOINTS")
    asyncio.run(second(hot))


def test_an_orderly_stop_leaves_nothing_to_replay(tmp_path: Path) -> None:
    async def first() -> str:
        async with service(tmp_path) as made:
            hot = (await made.queries.register(HOT)).id
            await made.feed(*range(21, 60))
            await made.answers(hot, 39)
            return hot

    async def second(hot: str) -> None:
        async with service(tmp_path) as made:
            made.sequence = 1
            await made.feed(70)
            assert len(await made.answers(hot, 40)) == 40
            metrics = (await made.link.metrics([hot])).queries[hot]
            assert metrics.checkpoint is not None
            assert metrics.checkpoint.replayed_rows == 0

    asyncio.run(second(asyncio.run(first())))
