"""How feeds end: on Ctrl-C, with rejected rows, when the server dies; and what they report."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.commands.as_process import PATIENCE, started
from tests.support.commands.in_process import command
from tests.support.servers.cutting_proxy import cutting_proxy
from tests.support.servers.running_server import RunningServer, eventually, running_server, until

from mavstream import Client
from mavstream_feeder import (
    Address,
    Feeder,
    FileSource,
    Options,
    Patience,
    RowsRefused,
    Stopped,
    parse_rate,
)
from mavstream_feeder.display import remarks
from mavstream_protocol import StreamSpec
from mavstream_protocol.wire.feed import Format
from mavstream_server.log import LogReader

COUNT = 3000
FIELDS = [{"name": "n", "type": "int"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files") / "numbers.csv"
    path.write_text("n\n" + "".join(f"{n}\n" for n in range(COUNT)))
    return path


def numbered(name: str) -> StreamSpec:
    return StreamSpec.model_validate({"name": name, "fields": FIELDS})


def in_log(data: Path, stream: str) -> list[int]:
    """Return the numbers of all rows in a stream's log."""
    cursor = LogReader(data / "streams" / stream).cursor(0)
    found: list[int] = []
    while spans := cursor.take(1 << 20):
        for frame, start, stop in spans:
            if stop > start:
                found += frame.column("n").values[start:stop].tolist()
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_feed_reports_where_it_stopped_and_can_be_resumed(
    server: RunningServer, numbers: Path, number: signal.Signals
) -> None:
    name = f"stopped_by_{number.name.lower()}"
    with Client(server.url) as client:
        client.create_stream(numbered(name))
        feed = started("--url", server.url, "feed", f"{name}={numbers}", "--rate", "300")
        eventually(lambda: client.stream_info(name).position > 50, "rows of the feed")
        feed.send_signal(number)
        printed, complaints = feed.communicate(timeout=PATIENCE)
        assert (feed.returncode, complaints) == (0, "")
        assert "stopped as requested; all rows that were sent are acknowledged" in printed
        (row,) = re.findall(rf"{name}: after row (\d+) of {numbers}", printed)
        assert client.stream_info(name).position == int(row) < COUNT
        (skip,) = re.findall(r"continue there with (--skip \S+)", printed)
        done = command("--url", server.url, "feed", f"{name}={numbers}", *skip.split())
        assert done.returncode == 0, done.stderr
    assert in_log(server.data, name) == list(range(COUNT))


def test_a_feed_that_lost_its_server_reports_its_rows(tmp_path: Path, numbers: Path) -> None:
    async def feed(server: RunningServer) -> Feeder:
        feeder = Feeder(Address(server.url), Options(), Patience(outage=0.2))
        feeder.add("gone", FileSource(numbers, numbered("gone")), parse_rate("1000"))
        work = asyncio.create_task(feeder.run())
        await until(lambda: feeder.report().acked >= 100, "acks ahead of the kill")
        server.kill()
        await asyncio.gather(work, return_exceptions=True)
        return feeder

    with running_server(tmp_path) as server:
        server.http.post("/v1/streams", json=numbered("gone").model_dump(mode="json")).raise_for_status()
        report = asyncio.run(feed(server)).report()
    assert report.stopped is Stopped.FAILED
    assert report.streams["gone"].row == report.acked < COUNT
    assert any("aborted; all rows up to here are acknowledged" in line for line in remarks(report))


def test_a_second_signal_ends_a_feed_without_waiting_for_a_dead_server(tmp_path: Path, numbers: Path) -> None:
    with running_server(tmp_path) as server, Client(server.url) as client:
        client.create_stream(numbered("given_up"))
        feed = started("--url", server.url, "feed", f"given_up={numbers}", "--rate", "300")
        eventually(lambda: client.stream_info("given_up").position > 50, "rows of the feed")
        server.kill()
        # Two different signals, because the same one twice may be delivered once.
        feed.send_signal(signal.SIGINT)
        feed.send_signal(signal.SIGTERM)
        printed, complaints = feed.communicate(timeout=PATIENCE)
    assert (feed.returncode, complaints) == (130, "")
    (row,) = re.findall(r"given_up: after row (\d+) of", printed)
    assert in_log(tmp_path, "given_up")[: int(row)] == list(range(int(row)))


def test_each_row_is_in_the_log_once_after_the_server_was_restarted(tmp_path: Path, numbers: Path) -> None:
    async def feed(server: RunningServer) -> None:
        feeder = Feeder(Address(server.url), Options(frame_rows=10), Patience(longest_pause=0.2))
        feeder.add("kept", FileSource(numbers, numbered("kept")), parse_rate("1500"))
        work = asyncio.create_task(feeder.run())
        await until(lambda: feeder.report().acked >= 300, "acks ahead of the restart")
        assert await asyncio.to_thread(server.stop) == 0
        again = RunningServer(tmp_path, "--port", server.url.rpartition(":")[2])
        try:
            await asyncio.to_thread(again.wait_ready)
            report = await work
        finally:
            await asyncio.to_thread(again.close)
        assert report.reconnects >= 1
        assert (report.sent, report.acked, report.rejected) == (COUNT, COUNT, 0)

    with running_server(tmp_path) as server:
        server.http.post("/v1/streams", json=numbered("kept").model_dump(mode="json")).raise_for_status()
        asyncio.run(feed(server))
    assert in_log(tmp_path, "kept") == list(range(COUNT))


def test_a_stream_that_waited_for_acks_continues_when_the_welcome_confirms_them(
    server: RunningServer, numbers: Path
) -> None:
    """All frames in flight are in the log, and the connection is lost before any ack."""
    with Client(server.url) as client:
        client.create_stream(numbered("lost_acks"))
    # The welcome passes, the first ack does not; then the proxy lets everything pass.
    with cutting_proxy(server.url, [450] * 3, "down") as proxy:
        feeder = Feeder(Address(proxy.url), Options(frame_rows=20), Patience(first_pause=0.01))
        feeder.add("lost_acks", FileSource(numbers, numbered("lost_acks")), parse_rate("max"))
        report = asyncio.run(asyncio.wait_for(feeder.run(), PATIENCE))
        assert proxy.cuts >= 1
    assert report.acked == COUNT
    assert in_log(server.data, "lost_acks") == list(range(COUNT))


AHEAD = StreamSpec.model_validate(
    {
        "name": "ahead",
        "fields": [{"name": "at", "type": "timestamp"}, *FIELDS],
        "event_time": "at",
        "max_ahead": "1m",
    }
)


@pytest.fixture
def some_from_the_future(tmp_path: Path) -> Path:
    path = tmp_path / "ahead.csv"
    lines = [f"{2126 if n % 10 == 3 else 2026}-01-01T00:00:00Z,{n}\n" for n in range(100)]
    # A frame all of whose rows are rejected.
    lines[40:50] = [f"2126-01-01T00:00:00Z,{n}\n" for n in range(40, 50)]
    path.write_text("at,n\n" + "".join(lines))
    return path


@pytest.mark.parametrize("form", [Format.ARROW, Format.COLUMNS])
def test_rejected_rows_can_be_skipped_and_are_counted(
    server: RunningServer, some_from_the_future: Path, form: Format
) -> None:
    spec = AHEAD.model_copy(update={"name": f"ahead_{form}"})
    with Client(server.url) as client:
        client.create_stream(spec)
    feeder = Feeder(Address(server.url), Options(frame_rows=10, format=form, skip_rejected=True))
    feeder.add(spec.name, FileSource(some_from_the_future, spec), parse_rate("max"))
    report = asyncio.run(asyncio.wait_for(feeder.run(), PATIENCE))
    kept = [n for n in range(100) if n % 10 != 3 and not 40 <= n < 50]
    assert in_log(server.data, spec.name) == kept
    assert (report.sent, report.acked, report.rejected) == (100, len(kept), 100 - len(kept))


def test_by_default_a_rejection_ends_the_feed_and_is_reported(
    server: RunningServer, some_from_the_future: Path
) -> None:
    with Client(server.url) as client:
        client.create_stream(AHEAD)
    words = ("--url", server.url, "feed", f"ahead={some_from_the_future}", "--frame-rows", "10", "-o", "json")
    done = command(*words)
    assert done.returncode == 1
    assert "the server refused rows" in done.stderr
    report = json.loads(done.stdout)
    assert report["stopped"] == "failed"
    assert report["rejected"] >= 1
    assert report["streams"]["ahead"]["row"] == 0
    feeder = Feeder(Address(server.url), Options(producer="other"))
    feeder.add("ahead", FileSource(some_from_the_future, AHEAD), parse_rate("max"))
    with pytest.raises(RowsRefused, match="stream 'ahead'"):
        asyncio.run(feeder.run())
