"""The feeder against a real server: every row arrives exactly once; and its command."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.commands.in_process import command
from tests.support.reading_files import written
from tests.support.servers.cutting_proxy import cutting_proxy
from tests.support.servers.running_server import PATIENCE, RunningServer, running_server, until

from mavstream import AsyncClient, Client, stream
from mavstream_feeder import (
    Address,
    Feeder,
    FeedLost,
    FileSource,
    Options,
    Patience,
    RowsRefused,
    parse_rate,
)
from mavstream_protocol import StreamSpec
from mavstream_protocol.wire.feed import Format

NUMBERED = {"fields": [{"name": "n", "type": "int"}, {"name": "text", "type": "string"}]}
COUNT = 3000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files") / "numbers.csv"
    path.write_text("n,text\n" + "".join(f"{n},row {n}\n" for n in range(COUNT)))
    return path


def numbered(name: str, **options: Any) -> StreamSpec:
    return StreamSpec.model_validate({"name": name, **NUMBERED, **options})


def received(client: Client, name: str, count: int) -> list[int]:
    """Return the answers of a query over the whole stream, and assert that there are no more."""
    query = client.submit(stream(name).project(n="n"), name=f"all_{name}", from_="earliest")
    rows = query.results().to_arrow(count, timeout=PATIENCE)
    assert client.stream_info(name).position == count
    return rows.column("n").to_pylist()


@pytest.mark.parametrize(
    ("form", "rate"),
    [(Format.ARROW, "max"), (Format.COLUMNS, "max"), (Format.ROWS, "max"), (Format.ARROW, "3000")],
)
def test_every_row_arrives_once_and_in_order(
    server: RunningServer, numbers: Path, form: Format, rate: str
) -> None:
    spec = numbered(f"once_{form}_{rate}")
    with Client(server.url) as client:
        client.create_stream(spec)
        feeder = Feeder(Address(server.url), Options(format=form, frame_rows=70))
        feeder.add(spec.name, FileSource(numbers, spec), parse_rate(rate))
        report = asyncio.run(feeder.run())
        assert (report.sent, report.acked) == (COUNT, COUNT)
        assert received(client, spec.name, COUNT) == list(range(COUNT))


@pytest.mark.parametrize("direction", ["up", "down"])
def test_no_row_is_lost_or_duplicated_when_the_connection_is_cut(
    server: RunningServer, numbers: Path, direction: Any
) -> None:
    spec = numbered(f"cut_{direction}")
    limits = [700, 900, 5000, 20_000, 1500] if direction == "up" else [500, 700, 800, 600, 900]
    with Client(server.url) as client, cutting_proxy(server.url, limits, direction) as proxy:
        client.create_stream(spec)
        feeder = Feeder(Address(proxy.url), Options(frame_rows=20), Patience(first_pause=0.01))
        feeder.add(spec.name, FileSource(numbers, spec), parse_rate("4000"))
        report = asyncio.run(feeder.run())
        assert proxy.cuts >= 3
        assert report.reconnects >= 2
        assert (report.sent, report.acked) == (COUNT, COUNT)
        assert received(client, spec.name, COUNT) == list(range(COUNT))


def test_the_feeder_continues_after_the_server_was_killed(tmp_path: Path, numbers: Path) -> None:
    """Three streams of one schema, whose frames share messages."""
    specs = [numbered(f"killed_{number}") for number in range(3)]

    async def feed(server: RunningServer) -> None:
        feeder = Feeder(Address(server.url), Options(frame_rows=10), Patience(longest_pause=0.2))
        for spec in specs:
            feeder.add(spec.name, FileSource(numbers, spec), parse_rate("1500"))
        work = asyncio.create_task(feeder.run())

        await until(lambda: feeder.report().acked >= 900, "acks ahead of the kill")
        server.kill()
        again = RunningServer(tmp_path, "--port", server.url.rpartition(":")[2])
        try:
            await asyncio.to_thread(again.wait_ready)
            report = await work
            assert report.reconnects >= 1
            assert (report.sent, report.acked) == (3 * COUNT, 3 * COUNT)
            with Client(again.url) as client:
                for spec in specs:
                    found = await asyncio.to_thread(received, client, spec.name, COUNT)
                    assert found == list(range(COUNT))
        finally:
            await asyncio.to_thread(again.close)

    with running_server(tmp_path) as server:
        for spec in specs:
            server.http.post("/v1/streams", json=spec.model_dump(mode="json")).raise_for_status()
        asyncio.run(feed(server))


def test_a_stream_without_credit_waits_and_the_others_continue(server: RunningServer, numbers: Path) -> None:
    # Its retention keeps all rows, so that its quota is reached.
    full, free = numbered("full", quota="64KB", retention={"time": "1h"}), numbered("free")

    async def feed() -> None:
        feeder = Feeder(Address(server.url), Options(frame_rows=500))
        async with AsyncClient(server.url) as client:
            for spec in (full, free):
                await client.create_stream(spec)
            feeder.add("full", FileSource(numbers, full, loop=True), parse_rate("max"))
            feeder.add("free", FileSource(numbers, free, loop=True, limit=20_000), parse_rate("max"))
            work = asyncio.create_task(feeder.run())

            def waits() -> bool:
                report = feeder.report()
                return report.streams["full"].waiting and report.streams["free"].acked == 20_000

            await until(waits, "the full stream to wait and the other one to end")
            assert (await client.stream_info("full")).over_quota
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    asyncio.run(feed())


def test_a_stream_can_join_while_the_feeder_runs(server: RunningServer, numbers: Path) -> None:
    first, second = numbered("first"), numbered("second")

    async def feed() -> None:
        feeder = Feeder(Address(server.url), Options(frame_rows=50))
        feeder.add("first", FileSource(numbers, first), parse_rate("2000"))
        work = asyncio.create_task(feeder.run())

        await until(lambda: feeder.report().acked > 0, "first acks")
        feeder.add("second", FileSource(numbers, second), parse_rate("max"))
        report = await work
        assert {name: each.acked for name, each in report.streams.items()} == {
            "first": COUNT,
            "second": COUNT,
        }

    with Client(server.url) as client:
        client.create_stream(first)
        client.create_stream(second)
        asyncio.run(feed())
        for name in ("first", "second"):
            assert received(client, name, COUNT) == list(range(COUNT))


def test_errors_that_end_a_feed_are_raised_at_once(
    server: RunningServer, tmp_path: Path, numbers: Path
) -> None:
    def run(address: Address, spec: StreamSpec, path: Path = numbers, **options: Any) -> None:
        feeder = Feeder(address, Options(**options), Patience(outage=0.2))
        feeder.add(spec.name, FileSource(path, spec), parse_rate("max"))
        asyncio.run(feeder.run())

    with pytest.raises(FeedLost, match="does not know missing: create them, or give --create"):
        run(Address(server.url), numbered("missing"))
    with pytest.raises(FeedLost, match=r"no server answers at http://127\.0\.0\.1:9 for"):
        run(Address("http://127.0.0.1:9"), numbered("missing"))
    future = StreamSpec.model_validate(
        {
            "name": "future",
            "fields": [{"name": "at", "type": "timestamp"}],
            "event_time": "at",
            "max_ahead": "1m",
        }
    )
    path = tmp_path / "future.csv"
    path.write_text("at\n2126-01-01T00:00:00Z\n")
    with Client(server.url) as client:
        client.create_stream(future)
    with pytest.raises(RowsRefused, match="stream 'future': the server refused rows"):
        run(Address(server.url), future, path)


def test_a_feeder_of_the_same_name_takes_over(server: RunningServer, numbers: Path) -> None:
    spec = numbered("taken")

    async def feed() -> None:
        first, second = (Feeder(Address(server.url), Options(producer="same", end=False)) for _ in range(2))
        first.add("taken", FileSource(numbers, spec, loop=True), parse_rate("100"))
        work = asyncio.create_task(first.run())

        await until(lambda: first.report().acked > 0, "first acks")
        second.add("taken", FileSource(numbers, spec, limit=10), parse_rate("max"))
        await second.run()
        with pytest.raises(FeedLost, match=r"4409.*another connection of producer 'same'"):
            await work

    with Client(server.url) as client:
        client.create_stream(spec)
        asyncio.run(feed())


def test_the_command_creates_feeds_and_reports(server: RunningServer, tmp_path: Path) -> None:
    path = written(tmp_path, "jsonl")
    done = command(
        "feed", f"made={path}", "--url", server.url, "--create", "--loop", "--limit", "500", "--rate",
        "made=max", "--stamp", "now", "-o", "json",
    )  # fmt: skip
    assert done.stderr == ""
    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert report["acked"] == report["streams"]["made"]["sent"] == 500
    with Client(server.url) as client:
        info = client.stream_info("made")
    assert info.position == 500
    assert info.spec.event_time == "at"


def test_the_command_prints_a_table(server: RunningServer) -> None:
    done = command(
        "--url", server.url, "feed", "--sample", "--stamp", "now", "--rate", "500", "--seconds", "1"
    )
    assert done.returncode == 0, done.stderr
    assert "temperature" in done.stdout
    assert "all in" in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "printed"),
    [
        (["nowhere=nothing.csv", "--rate", "5"], 1, "nowhere"),
        (["--rate", "5"], 2, "nothing to feed"),
        (["a=b.csv", "--rate", "fast"], 2, "expected rows per second"),
        (["a=b.txt", "--create"], 2, "expected a file that ends in .csv"),
        (["a=b.csv", "a=c.csv"], 2, "has two files"),
        (["a=b.csv", "--stamp", "then"], 2, "expected one of file, now, got"),
    ],
)
def test_the_command_explains_errors(
    server: RunningServer, words: list[str], code: int, printed: str
) -> None:
    done = command("--url", server.url, "feed", *words)
    assert printed in " ".join(done.stderr.replace("│", " ").split())
    assert done.returncode == code
    assert "Traceback" not in done.stderr
