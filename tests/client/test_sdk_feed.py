"""Feeding a real server through broken connections and restarts."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.cutting_proxy import cutting_proxy
from tests.support.servers.running_server import running_server

from mavstream import (
    AsyncClient,
    Client,
    Conflict,
    Feed,
    InvalidTuples,
    NotFound,
    Query,
    Rejected,
    Retry,
    TransportError,
    stream,
)
from mavstream.testing import start_server

QUICK = Retry(attempts=50, first=0.005, most=0.02)
FIELDS = [{"name": "id", "type": "int"}, {"name": "word", "type": "string"}]


def rows(start: int, stop: int) -> list[dict[str, Any]]:
    return [{"id": number, "word": f"word {number % 17}"} for number in range(start, stop)]


def ids(query: Query) -> list[int]:
    found: list[int] = query.results(timeout=20).to_arrow().column("id").to_pylist()
    return found


def send_on(feed: Feed, name: str) -> None:
    for number in range(1000):
        feed.send(name, rows(number, number + 1))
        feed.flush()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with start_server() as found:
        yield found


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Client]:
    with Client(url) as found:
        yield found


@pytest.fixture
def fed(client: Client, request: pytest.FixtureRequest) -> tuple[str, Query]:
    """A stream, and a query that answers its rows."""
    name = "f_" + re.sub(r"\W", "_", request.node.name)[-60:]
    client.create_stream(name=name, fields=FIELDS)
    return name, client.submit(stream(name))


def limits(seed: int, count: int = 30) -> list[int]:
    source = random.Random(seed)
    return [source.choice((source.randrange(1, 900), source.randrange(1, 40_000))) for _ in range(count)]


def test_rows_in_any_form_arrive(client: Client, fed: tuple[str, Query]) -> None:
    name, query = fed
    with client.feed("form", [name]) as feed:
        assert feed.send(name, rows(0, 3)) == 3
        feed.send(name, {"id": [3, 4], "word": ["word 3", "word 4"]})
        feed.send(name, [])
        feed.send(name, iter(rows(5, 6)))
        feed.flush()
        assert feed.acked(name) == 3
        assert client.stream_info(name).producers == {"form": 3}
    client.complete(name)
    assert list(query.results(timeout=20)) == rows(0, 6)


@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("seed", range(3))
def test_cut_connections_lose_and_duplicate_nothing(
    url: str, client: Client, fed: tuple[str, Query], seed: int, direction: Any
) -> None:
    name, query = fed
    source = random.Random(seed)
    points = limits(seed) if direction == "up" else [source.randrange(1, 600) for _ in range(30)]
    with cutting_proxy(url, points, direction) as proxy, Client(proxy.url, retry=QUICK) as cut:
        with cut.feed(f"cut_{seed}_{direction}", [name]) as feed:
            for start in range(0, 20_000, 50):
                feed.send(name, rows(start, start + 50))
                # Acks are cumulative: without waiting for some, there would be few, and few could be cut.
                if start % 500 == 0:
                    feed.flush()
        assert proxy.cuts > 5
    client.complete(name)
    assert ids(query) == list(range(20_000))


def test_cut_connections_lose_and_duplicate_nothing_for_the_async_client(
    url: str, client: Client, fed: tuple[str, Query]
) -> None:
    name, query = fed

    async def work(address: str) -> None:
        async with AsyncClient(address, retry=QUICK) as cut, cut.feed("acut", [name]) as feed:
            for start in range(0, 10_000, 50):
                await feed.send(name, rows(start, start + 50))

    with cutting_proxy(url, limits(11), "up") as proxy:
        asyncio.run(work(proxy.url))
        assert proxy.cuts > 5
    client.complete(name)
    assert ids(query) == list(range(10_000))


def test_several_tasks_share_a_feed(url: str, client: Client, fed: tuple[str, Query]) -> None:
    name, query = fed

    async def work() -> None:
        async with AsyncClient(url) as client, client.feed("tasks", [name]) as feed:
            await asyncio.gather(*(feed.send(name, rows(start, start + 10)) for start in range(0, 1000, 10)))

    asyncio.run(work())
    client.complete(name)
    assert sorted(ids(query)) == list(range(1000))


def test_streams_may_be_added_to_an_open_feed(client: Client, fed: tuple[str, Query]) -> None:
    name, query = fed
    other = f"{name}_other"
    client.create_stream(name=other, fields=FIELDS)
    with client.feed("adder") as feed:
        for number in range(10):
            feed.send(name, rows(number, number + 1))
            feed.send(other, rows(number, number + 1))
    assert client.stream_info(other).position == 10
    client.complete(name)
    assert ids(query) == list(range(10))


def test_a_later_feed_of_the_same_name_continues_its_sequences(
    client: Client, fed: tuple[str, Query]
) -> None:
    name, query = fed
    for start in range(0, 30, 10):
        with client.feed("daily", [name]) as feed:
            assert feed.acked(name) == start // 10
            feed.send(name, rows(start, start + 10))
    client.complete(name)
    assert ids(query) == list(range(30))


def test_no_more_bytes_are_in_flight_than_the_server_allows() -> None:
    with start_server(credit_bytes="64KiB", max_frame_bytes="128KiB") as url, Client(url) as client:
        client.create_stream(name="s", fields=FIELDS)
        query = client.submit(stream("s"))
        with client.feed("much", ["s"]) as feed:
            feed.send("s", rows(0, 50_000))
        client.complete("s")
        assert ids(query) == list(range(50_000))


def test_rows_after_a_rejected_frame_are_appended(client: Client, fed: tuple[str, Query]) -> None:
    name = f"{fed[0][:50]}_ahead"
    fields = [{"name": "id", "type": "int"}, {"name": "at", "type": "timestamp"}]
    client.create_stream(name=name, fields=fields, event_time="at", max_ahead="1h")
    query = client.submit(stream(name))

    def row(number: int, at: str = "2026-01-01T00:00:00Z") -> list[dict[str, Any]]:
        return [{"id": number, "at": at}]

    refused: list[Rejected] = []
    with client.feed("dreamer", [name], on_reject=refused.append) as feed:
        for number in range(100):
            feed.send(name, row(number, "2999-01-01T00:00:00Z") if number % 10 == 3 else row(number))
    assert [(one.stream, one.rows, one.problem.status) for one in refused] == [(name, 1, 422)] * 10
    with pytest.raises(Rejected), client.feed("dreamer_2", [name]) as feed:
        feed.send(name, row(100, "2999-01-01T00:00:00Z"))
    client.complete(name)
    assert ids(query) == [number for number in range(100) if number % 10 != 3]


def test_wrong_rows_are_refused_before_they_are_sent(client: Client, fed: tuple[str, Query]) -> None:
    name, query = fed
    with client.feed("careless", [name]) as feed:
        feed.send(name, rows(0, 1))
        with pytest.raises(InvalidTuples, match="rows/0/id"):
            feed.send(name, [{"id": "zero", "word": ""}])
        feed.send(name, rows(1, 2))
    client.complete(name)
    assert ids(query) == [0, 1]


def test_an_unknown_stream_is_reported_at_once(client: Client) -> None:
    with pytest.raises(NotFound, match="no stream 'nowhere'"), client.feed("lost", ["nowhere"]):
        pass
    with client.feed("lost") as feed, pytest.raises(NotFound):
        feed.send("nowhere", rows(0, 1))


def test_a_second_feed_of_the_same_name_takes_over(client: Client, fed: tuple[str, Query]) -> None:
    name, _ = fed
    first = client.feed("twin", [name]).__enter__()
    first.send(name, rows(0, 1))
    first.flush()
    with client.feed("twin", [name]) as second:
        second.send(name, rows(1, 2))
        with pytest.raises(Conflict, match="taken over"):
            send_on(first, name)
    first.close()


def test_the_end_of_a_producer_closes_its_windows(client: Client, fed: tuple[str, Query]) -> None:
    name = f"{fed[0][:50]}_t"
    fields = [{"name": "id", "type": "int"}, {"name": "at", "type": "timestamp"}]
    client.create_stream(name=name, fields=fields, event_time="at", lateness="1h")
    query = client.submit(stream(name).window("1s").agg(n="count(*)"))
    with client.feed("ender", [name]) as feed:
        feed.send(name, [{"id": second, "at": f"2026-01-01T00:00:0{second}Z"} for second in range(3)])
        feed.end(name)
    with query.results(timeout=20) as results:
        assert [next(results)["n"], next(results)["n"]] == [1, 1]


def test_a_server_that_is_killed_and_restarted_gets_every_row_once(tmp_path: Path) -> None:
    patient = Retry(first=0.01, most=0.05, patience=60)
    with running_server(tmp_path) as server:
        port = server.url.rpartition(":")[2]
        with Client(server.url) as client:
            client.create_stream(name="s", fields=FIELDS)
        with Client(server.url, retry=patient) as client:
            feed = client.feed("survivor", ["s"]).__enter__()
            for start in range(0, 5000, 50):
                feed.send("s", rows(start, start + 50))
            server.kill()
            with running_server(tmp_path, "--port", port) as again:
                assert again.url == client.url
                for start in range(5000, 6000, 50):
                    feed.send("s", rows(start, start + 50))
                feed.flush()
                feed.close()
                query = client.submit(stream("s"), from_="earliest")
                client.complete("s")
                assert ids(query) == list(range(6000))


def test_a_feed_gives_up_when_its_server_stays_down(tmp_path: Path) -> None:
    with (
        running_server(tmp_path) as server,
        Client(server.url, retry=Retry(first=0.01, patience=0.2)) as client,
    ):
        client.create_stream(name="s", fields=FIELDS)
        feed = client.feed("p", ["s"]).__enter__()
        server.kill()
        with pytest.raises(TransportError, match="cannot reach"):
            send_on(feed, "s")
        feed.close()
