"""Reading a query's answers from a real server through broken connections."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.servers.cutting_proxy import cutting_proxy
from tests.support.servers.running_server import eventually

from mavstream import (
    AsyncClient,
    Client,
    GapFound,
    GapWarning,
    NotFound,
    Query,
    QueryFailed,
    Retry,
    Timeout,
    stream,
)
from mavstream.testing import start_server

QUICK = Retry(first=0.005, most=0.02)
ROWS = 20_000
FIELDS = [{"name": "id", "type": "int"}, {"name": "word", "type": "string"}]


def rows(start: int, stop: int) -> list[dict[str, Any]]:
    return [{"id": number, "word": f"word {number % 17}"} for number in range(start, stop)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with start_server() as found:
        yield found


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Client]:
    with Client(url) as found:
        yield found


def test_results_go_on_behind_a_replacement_and_after_a_reconnect(client: Client) -> None:
    client.create_stream(name="replaced", fields=FIELDS)
    query = client.replace("small", stream("replaced").where("id < 10").named("out"))
    client.append("replaced", rows(0, 20))
    with client.results("small", timeout=20) as results:
        assert [next(results)["id"] for _ in range(10)] == list(range(10))
        assert client.replace("small", stream("replaced").where("id >= 25").named("out")).id == query.id
        client.append("replaced", rows(20, 30))
        assert [next(results)["id"] for _ in range(5)] == list(range(25, 30))
        assert (results.revision, results.epoch, results.offset) == (1, 1, 14)
    with client.results("small", after=4, timeout=20) as again:
        assert [next(again)["id"] for _ in range(10)] == [*range(5, 10), *range(25, 30)]
        assert again.revision == 1
    assert client.query("small").pull(after=9).revision == 1
    client.query("small").delete()


def test_results_change_their_columns_where_the_query_was_replaced(client: Client) -> None:
    client.create_stream(name="changing", fields=FIELDS)
    client.replace("changed", stream("changing").where("id < 10"))
    client.append("changing", rows(0, 20))
    with client.results("changed", timeout=20) as results:
        assert results.to_arrow(10).column_names == ["id", "word"]
        client.sql("CREATE OR REPLACE QUERY changed AS SELECT id * 2 AS twice FROM changing")
        client.append("changing", rows(20, 22))
        assert next(results) == {"twice": 40}
        assert results.schema is not None
        assert results.schema.names == ("twice",)
    with client.results("changed", after=7, timeout=20) as again:
        # A table has rows of one plan.
        assert again.to_arrow(4).to_pydict() == {"id": [8, 9], "word": ["word 8", "word 9"]}
        assert again.to_arrow(2).to_pydict() == {"twice": [40, 42]}
    page = client.query("changed").pull(after=9)
    assert (page.rows, page.revision) == ([{"twice": 40}, {"twice": 42}], 1)
    client.query("changed").delete()


@pytest.fixture(scope="module")
def finished(client: Client) -> Query:
    """A query that has given ROWS answers, in many frames, and has ended."""
    client.create_stream(name="numbers", fields=FIELDS)
    query = client.submit(stream("numbers"), name="all_numbers")
    for start in range(0, ROWS, 100):
        client.append("numbers", rows(start, start + 100))
    client.complete("numbers")
    eventually(lambda: query.info().state == "finished", "the query to finish")
    return query


@pytest.fixture
def running(client: Client, request: pytest.FixtureRequest) -> tuple[str, Query]:
    """A stream without rows, and a running query over it."""
    name = "r_" + request.node.name.partition("[")[0][-60:]
    client.create_stream(name=name, fields=FIELDS)
    return name, client.submit(stream(name))


def limits(seed: int, count: int = 40) -> list[int]:
    """Points at which to cut: in the handshake, in the first message, in the middle of batches."""
    source = random.Random(seed)
    return [source.choice((source.randrange(1, 700), source.randrange(1, 60_000))) for _ in range(count)]


def test_rows_are_read_once_and_in_order(client: Client, finished: Query) -> None:
    with client.results(finished, timeout=20) as results:
        assert list(results) == rows(0, ROWS)
        assert (results.offset, results.state) == (ROWS - 1, "finished")
        assert list(results) == []


@pytest.mark.parametrize("seed", range(4))
def test_cut_connections_lose_and_repeat_nothing(url: str, finished: Query, seed: int) -> None:
    with cutting_proxy(url, limits(seed)) as proxy, Client(proxy.url, retry=QUICK) as client:
        found = [row["id"] for row in client.results(finished.id, timeout=20)]
        assert proxy.cuts > 5
    assert found == list(range(ROWS))


def test_cut_connections_lose_and_repeat_nothing_for_the_async_client(url: str, finished: Query) -> None:
    async def read(address: str) -> list[int]:
        async with (
            AsyncClient(address, retry=QUICK) as client,
            client.results(finished.id, timeout=20) as results,
        ):
            return [row["id"] async for row in results]

    with cutting_proxy(url, limits(9)) as proxy:
        assert asyncio.run(read(proxy.url)) == list(range(ROWS))
        assert proxy.cuts > 5


def test_a_cut_between_any_two_rows_loses_and_repeats_nothing(
    url: str, client: Client, running: tuple[str, Query]
) -> None:
    name, query = running
    with cutting_proxy(url) as proxy, Client(proxy.url, retry=QUICK) as reader:
        results = reader.results(query.id, timeout=20)
        for number in range(30):
            client.append(name, rows(number, number + 1))
            assert next(results)["id"] == number
            assert results.offset == number
            proxy.cut()
        results.close()


@pytest.mark.parametrize("after", [None, -1, 0, 99, 100, ROWS - 2, ROWS - 1])
def test_reading_begins_after_an_offset(client: Client, finished: Query, after: int | None) -> None:
    found = client.results(finished, after, timeout=20).to_arrow()
    first = 0 if after is None else after + 1
    assert found.column("id").to_pylist() == list(range(first, ROWS))


def test_reading_continues_at_exactly_the_row_where_it_stopped(client: Client, finished: Query) -> None:
    results = client.results(finished, timeout=20)
    for row in results:
        if row["id"] == 150:
            break
    assert results.offset == 150
    assert next(client.results(finished, results.offset, timeout=20))["id"] == 151
    results.close()
    assert next(results)["id"] == 151
    assert results.to_arrow(limit=3).column("id").to_pylist() == [152, 153, 154]
    assert next(results.batches()).column("id")[0].as_py() == 155
    results.close()


def test_reading_can_begin_with_new_rows_only(client: Client, running: tuple[str, Query]) -> None:
    name, query = running
    client.append(name, rows(0, 5))
    eventually(lambda: query.info().results == 5, "five answers")
    with query.results("latest", timeout=0.05) as results:
        with pytest.raises(Timeout, match="gave no row within"):
            next(results)
        client.append(name, rows(5, 6))
        eventually(lambda: query.info().results == 6, "the sixth answer")
        assert next(results) == rows(5, 6)[0]


def test_rows_can_be_read_as_batches_tables_and_data_frames(client: Client, finished: Query) -> None:
    with finished.results(timeout=20) as results:
        batches = list(results.batches())
    assert sum(batch.num_rows for batch in batches) == ROWS
    table = finished.results().to_arrow(limit=10)
    assert table.schema.names == ["id", "word"]
    assert table.to_pylist() == rows(0, 10)
    frame = finished.results().to_pandas(limit=10)
    assert frame.to_dict("records") == rows(0, 10)


def test_a_table_has_the_rows_received_before_its_timeout(client: Client, running: tuple[str, Query]) -> None:
    name, query = running
    client.append(name, rows(0, 3))
    eventually(lambda: query.info().results == 3, "three answers")
    with query.results() as results:
        assert results.to_arrow(timeout=0.2).num_rows == 3
        assert results.to_arrow(timeout=0).num_rows == 0


def test_the_async_client_gives_batches_and_tables(url: str, finished: Query) -> None:
    async def read() -> tuple[int, Any, Any]:
        async with AsyncClient(url) as client:
            async with client.results(finished.id, timeout=20) as results:
                counted = sum([batch.num_rows async for batch in results.batches()])
            async with client.results(finished.id) as results:
                await anext(results)
                return counted, await results.to_arrow(limit=2), await results.to_pandas(limit=2)

    counted, table, frame = asyncio.run(read())
    assert counted == ROWS
    assert table.to_pylist() == rows(1, 3)
    assert frame.to_dict("records") == rows(3, 5)


def test_a_row_whose_await_was_cancelled_is_not_lost(
    url: str, client: Client, running: tuple[str, Query]
) -> None:
    name, query = running

    async def read() -> dict[str, Any]:
        async with AsyncClient(url) as reader, reader.results(query.id) as results:
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await anext(results)
            await asyncio.to_thread(client.append, name, rows(0, 1))
            async with asyncio.timeout(20):
                return await anext(results)

    assert asyncio.run(read()) == rows(0, 1)[0]


def test_reading_an_unknown_query_is_an_error(client: Client) -> None:
    with pytest.raises(NotFound, match="there is no query 'nothing'"):
        next(client.results("nothing"))


def test_reading_ends_with_the_query(client: Client, running: tuple[str, Query]) -> None:
    name, query = running
    client.append(name, rows(0, 2))
    eventually(lambda: query.info().results == 2, "two answers")
    query.stop()
    with query.results(timeout=20) as results:
        assert list(results) == rows(0, 2)
        assert results.state == "stopped"


def test_a_failed_query_raises_an_error_after_its_rows(client: Client, running: tuple[str, Query]) -> None:
    name, _ = running
    query = client.submit(stream(name).project(x="CAST(word AS BIGINT)"), on_error="fail")
    client.append(name, rows(0, 1))
    with query.results(timeout=20) as results, pytest.raises(QueryFailed, match="failed: "):
        list(results)
    assert results.state == "failed"


def test_gaps_are_reported_as_requested() -> None:
    gaps = []
    with start_server(result_bytes="1MiB", checkpoint_interval="200ms") as url, Client(url) as client:
        client.create_stream(name="s", fields=FIELDS)
        query = client.submit(stream("s"), name="q")
        for start in range(0, 12_000, 1000):
            client.append(
                "s", [{"id": number, "word": f"{number:0>1000}"} for number in range(start, start + 1000)]
            )
        eventually(lambda: query.pull(after=0, limit=1).gap, "the oldest answers to go")
        client.complete("s")
        eventually(lambda: query.info().state == "finished", "the query to finish")
        with pytest.warns(GapWarning, match="were removed before they were read"):
            warned = query.results(0, timeout=20).to_arrow().column("id").to_pylist()
        assert warned == list(range(warned[0], 12_000))
        remaining = query.results(0, on_gap=gaps.append, timeout=20).to_arrow().column("id").to_pylist()
        assert [(gap.start, gap.stop) for gap in gaps] == [(1, remaining[0])]
        assert len(query.results(0, on_gap="ignore", timeout=20).to_arrow()) == len(remaining)
        results = query.results(0, on_gap="raise", timeout=20)
        with pytest.raises(GapFound) as caught:
            next(results)
        assert caught.value.gap.stop == remaining[0]
        assert next(results)["id"] == remaining[0]
        results.close()
