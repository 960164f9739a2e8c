"""Appends with an idempotency key are made once, whenever the server dies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.support.servers.readings import create, rows
from tests.support.servers.running_server import running_server
from tests.support.servers.sensors import problem
from tests.support.services.stream_store import NUMBERS, Server, numbers, spec

from mavstream_server.catalog.keyed_appends import KeyedAppend
from mavstream_server.core.errors import Conflict
from mavstream_server.ingest.idempotent_appends import IdempotentAppends
from mavstream_server.testing import ManualClock

TUPLES = "/v1/streams/readings/tuples"
HOUR = 3600


@pytest.fixture
def server(tmp_path: Path, clock: ManualClock) -> Iterator[Server]:
    with Server(tmp_path, clock) as made:
        made.start().create(spec(NUMBERS))
        yield made


def appends_of(server: Server) -> IdempotentAppends:
    return IdempotentAppends(server.store, server.catalog.appends, server.path / "streams", server.clock)


async def append(
    server: Server, appends: IdempotentAppends, key: str, value: int, body: str | None = None
) -> tuple[int, bool]:
    given = appends.append("numbers", key, body or str(value), numbers(value), 8)
    task = asyncio.create_task(given)
    while not task.done():
        await asyncio.sleep(0)
        server.store.flush()
    return task.result()


def test_a_repeated_append_is_answered_as_the_first(server: Server) -> None:
    async def scenario() -> None:
        appends = appends_of(server)
        assert await append(server, appends, "a", 1) == (0, True)
        assert await append(server, appends, "b", 2) == (1, True)
        assert await append(server, appends, "a", 1) == (0, False)
        with pytest.raises(Conflict, match="used for other rows") as caught:
            await append(server, appends, "a", 3)
        assert caught.value.code == "idempotency_key_reused"

    asyncio.run(scenario())
    assert server.values("numbers") == [1, 2]


def test_two_requests_at_once_append_once(server: Server) -> None:
    async def scenario() -> list[tuple[int, bool]]:
        appends = appends_of(server)
        return await asyncio.gather(*(append(server, appends, "a", 1) for _ in range(3)))

    assert sorted(asyncio.run(scenario())) == [(0, False), (0, False), (0, True)]
    assert server.values("numbers") == [1]


def test_after_a_crash_the_log_says_whether_the_rows_are_there(server: Server) -> None:
    # As a server leaves them that dies after the rows were written, or before.
    for key, stamp in (("written", 11), ("lost", 12)):
        server.catalog.appends.add(
            KeyedAppend("numbers", key, key, stamp, 0, 1, None, server.clock.now() // 1000)
        )
    server.store.offer(None, "numbers", 0, numbers(7), 8)
    server.store.offer(None, "numbers", 0, numbers(8), 8, stamp=11)
    server.store.flush()
    server.again()
    appends = appends_of(server)
    assert asyncio.run(append(server, appends, "written", 8, "written")) == (1, False)
    assert asyncio.run(append(server, appends, "lost", 9, "lost")) == (2, True)
    assert server.values("numbers") == [7, 8, 9]


def test_keys_are_forgotten_after_a_day_and_with_their_stream(server: Server) -> None:
    appends, records = appends_of(server), server.catalog.appends
    asyncio.run(append(server, appends, "a", 1))
    server.clock.advance(seconds=23 * HOUR)
    appends.expire()
    asyncio.run(append(server, appends, "b", 2))
    assert records.count == 2
    server.clock.advance(seconds=2 * HOUR)
    appends.expire()
    assert (records.find("numbers", "a"), records.count) == (None, 1)
    server.store.remove("numbers")
    assert records.count == 0


def test_a_key_survives_sigkill(tmp_path: Path) -> None:
    keyed = {"json": rows(0, 3), "headers": {"Idempotency-Key": "once"}}
    with running_server(tmp_path) as server:
        create(server)
        server.http.post(TUPLES, json=rows(0, 2))
        first = server.http.post(TUPLES, **keyed)
        assert first.json() == {"accepted": 3, "position": 2, "sequence": None}
        server.kill()
    with running_server(tmp_path) as server:
        again: httpx.Response = server.http.post(TUPLES, **keyed)
        assert (again.status_code, again.json()) == (200, first.json())
        other = server.http.post(TUPLES, json=rows(0, 4), headers=keyed["headers"])
        assert problem(other) == (409, "idempotency_key_reused")
        both = {**keyed["headers"], "Producer": "p", "Sequence": "1"}
        assert problem(server.http.post(TUPLES, json=rows(0, 3), headers=both)) == (400, "key_and_producer")
        assert server.http.get("/v1/streams/readings").json()["position"] == 5
