"""Queries that kill the engine: not started a third time, resumed behind the rows that they failed at."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.servers.running_server import PATIENCE, until
from tests.support.services.query_service import HOT, Service, served, service

from mavstream_protocol.errors import InvalidObject
from mavstream_protocol.tuples import decode_columns
from mavstream_protocol.wire.resources import ActualState, DesiredState, QueryChange
from mavstream_server.core.errors import Conflict, WrongVersion
from mavstream_server.engine.crash_record import Reading
from mavstream_server.supervisor.crash import Crash

ROWS = 50_000
RUNNING = DesiredState.RUNNING

COSTLY: dict[str, Any] = {
    "name": "costly",
    "plan": {
        "root": "roots",
        "nodes": {
            "in": {"op": "source", "stream": "readings"},
            "roots": {
                "op": "project",
                "input": "in",
                "compute": {f"c{n}": f"sqrt(sqrt(temp + {n}) + sqrt(temp + {n}.5))" for n in range(40)},
            },
        },
    },
}


async def feed_many(made: Service) -> None:
    """Append many rows, whose temperatures are all 30."""
    made.sequence += 1
    schema = made.streams.spec("readings").schema()
    times = made.sequence * 1_000_000_000 + np.arange(ROWS)
    columns = {"at": times.tolist(), "room": ["hall"] * ROWS, "temp": [30] * ROWS}
    await made.streams.enqueuer.ingest(
        "tests", "readings", made.sequence, decode_columns(schema, columns), 1000
    )


async def die_at_work(made: Service, number: signal.Signals) -> None:
    """Have the engine die of a signal while it works, and wait for the next one."""
    await feed_many(made)
    pid, restarts = made.link.pid, made.link.restarts
    assert pid is not None
    os.kill(pid, number)
    await until(lambda: made.link.restarts > restarts, "another engine")
    await asyncio.wait_for(made.queries.placement.settled(), PATIENCE)


def test_a_query_that_killed_the_engine_twice_is_not_started_again(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        costly = (await made.queries.register(COSTLY)).id
        query = made.queries.get(costly)
        for _ in range(20):  # the signal may come between two slices, which blames nobody
            await die_at_work(made, signal.SIGSEGV)
            if query.final is not None:
                break
        assert query.state is ActualState.FAILED
        found = re.search(
            r"killed the engine process 2 times within an hour \(it was killed by SIGSEGV\).*at rows? \d+.* "
            r"of stream 'readings': 'mavstream query resume (\S+) --skip-to readings=(\d+)'",
            query.reason or "",
        )
        assert found is not None, query.reason
        assert found[1] == costly
        starts = query.epoch
        await made.kill_engine()
        assert (query.state, query.epoch) == (ActualState.FAILED, starts)

        skip_to = int(found[2])
        waiting = made.streams.info("readings").position - skip_to
        before = (await made.queries.views.info(costly)).results
        change = QueryChange(state=RUNNING, skip_to={"readings": skip_to})
        info = await made.queries.change(costly, change)
        assert (info.state, info.epoch, info.reason) == (ActualState.RUNNING, starts + 1, None)
        await made.answers(costly, before + waiting)

    served(test, tmp_path)


def test_queries_survive_an_engine_that_is_killed_from_outside(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        costly = (await made.queries.register(COSTLY)).id
        for _ in range(4):
            await die_at_work(made, signal.SIGKILL)
        assert made.queries.get(costly).state is ActualState.RUNNING

    served(test, tmp_path)


async def crashed(made: Service, id_: str, times: int = 2) -> None:
    """Report crashes of the engine at the first row of the stream, and have it die."""
    for _ in range(times):
        made.queries.engine_died(Crash("was killed by SIGSEGV", (id_,), (Reading("readings", 0, 1),)))
    await made.kill_engine()


def test_after_its_first_crash_a_query_runs_apart_from_others(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        hot = (await made.queries.register(HOT)).id
        await crashed(made, hot, times=1)
        query = made.queries.get(hot)
        assert (query.state, query.suspect) == (ActualState.RUNNING, True)

    served(test, tmp_path)


def test_a_failed_query_is_resumed_after_a_restart_of_the_server(tmp_path: Path) -> None:
    async def first() -> str:
        async with service(tmp_path) as made:
            hot = (await made.queries.register(HOT)).id
            await made.feed(30, 31, 32, 33)
            await made.answers(hot, 4)
            # The engine may write a checkpoint while it dies, after those of the query were removed.
            shutil.copytree(tmp_path / "checkpoints" / hot, tmp_path / "before")
            await crashed(made, hot)
            reason = made.queries.get(hot).reason or ""
            assert "it was at row 0 of stream 'readings'" in reason
            return hot

    async def second(hot: str) -> None:
        (tmp_path / "before").rename(tmp_path / "checkpoints" / hot)
        async with service(tmp_path) as made:
            assert made.queries.get(hot).state is ActualState.FAILED
            info = await made.queries.change(hot, QueryChange(state=RUNNING, skip_to={"readings": 2}))
            assert (info.state, info.epoch) == (ActualState.RUNNING, 2)
            assert [row["temp"] for row in await made.answers(hot, 6, after=3)] == [32, 33]
            assert made.queries.users("readings") == [hot]

    asyncio.run(second(asyncio.run(first())))


def test_a_query_cannot_be_resumed_elsewhere_than_in_its_streams(tmp_path: Path) -> None:
    async def test(made: Service) -> None:
        hot = (await made.queries.register(HOT)).id
        await made.feed(30, 31)
        await made.answers(hot, 2)
        with pytest.raises(Conflict, match="is running: skip_to is for a query that has failed"):
            await made.queries.change(hot, QueryChange(state=RUNNING, skip_to={"readings": 0}))
        await crashed(made, hot)
        with pytest.raises(Conflict, match="resume it with skip_to"):
            await made.queries.change(hot, QueryChange(state=RUNNING))
        with pytest.raises(InvalidObject, match="got position 3 of stream 'readings', which has rows 0 to 2"):
            await made.queries.change(hot, QueryChange(state=RUNNING, skip_to={"readings": 3}))
        with pytest.raises(InvalidObject, match="does not read stream 'others', but readings"):
            await made.queries.change(hot, QueryChange(state=RUNNING, skip_to={"others": 0}))
        change = QueryChange(state=RUNNING, skip_to={}, class_="default")
        with pytest.raises(InvalidObject, match="and nothing else"):
            await made.queries.change(hot, change)
        with pytest.raises(WrongVersion):
            await made.queries.change(hot, QueryChange(state=RUNNING, skip_to={}), version=77)
        assert made.queries.get(hot).state is ActualState.FAILED
        await made.queries.change(hot, QueryChange(state=RUNNING, skip_to={}))
        await made.feed(32)
        assert [row["temp"] for row in await made.answers(hot, 3, after=1)] == [32]

    served(test, tmp_path)
