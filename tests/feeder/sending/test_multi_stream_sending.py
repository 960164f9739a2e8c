"""Frames of several streams that the feeder sends as one message."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.running_server import PATIENCE, RunningServer, running_server
from websockets.asyncio.server import ServerConnection, serve

from mavstream import Client
from mavstream_feeder import Address, Feeder, FileSource, Options, parse_rate
from mavstream_feeder.pacing.punctuality import sleep_until
from mavstream_protocol import StreamSpec
from mavstream_protocol.wire.envelope import unseal
from mavstream_server.log import LogReader

FIELDS = [{"name": "n", "type": "int"}, {"name": "text", "type": "string"}]
COUNT = 1500
STREAMS = ("s0", "s1", "s2")


def numbered(name: str, **options: Any) -> StreamSpec:
    return StreamSpec.model_validate({"name": name, "fields": FIELDS, **options})


SCHEMA = numbered("any").schema()


def test_sleeping_until_a_time_does_not_end_early_and_other_tasks_run() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def main() -> float:
        task = asyncio.create_task(other())
        moment = time.monotonic() + 0.002
        await sleep_until(moment)
        task.cancel()
        return time.monotonic() - moment

    assert asyncio.run(main()) >= 0
    assert turns >= 2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files") / "numbers.csv"
    path.write_text("n,text\n" + "".join(f"{n},row {n}\n" for n in range(COUNT)))
    return path


def in_log(data: Path, name: str) -> list[int]:
    cursor = LogReader(data / "streams" / name).cursor(0)
    found: list[int] = []
    while spans := cursor.take(1 << 20):
        for frame, start, stop in spans:
            if stop > start:
                found += frame.column("n").values[start:stop].tolist()
    return found


def create(server: RunningServer, *specs: StreamSpec) -> None:
    with Client(server.url) as client:
        for spec in specs:
            client.create_stream(spec)


def fed_by(server: RunningServer, feeder: Feeder, numbers: Path, *specs: StreamSpec) -> Feeder:
    for spec in specs:
        feeder.add(spec.name, FileSource(numbers, spec), parse_rate("6000"))
    return feeder


def test_the_logs_have_the_same_rows_with_and_without_multi_stream_messages(
    server: RunningServer, numbers: Path
) -> None:
    # The last one has other fields, so it shares no message.
    other = StreamSpec.model_validate(
        {"name": "apart", "fields": [*FIELDS[:1], {**FIELDS[1], "nullable": True}]}
    )
    together = [numbered("with_0"), numbered("with_1"), numbered("with_2", quota="10MB"), other]
    alone = numbered("without")
    create(server, *together, alone)
    report = asyncio.run(fed_by(server, Feeder(Address(server.url)), numbers, *together).run())
    asyncio.run(fed_by(server, Feeder(Address(server.url)), numbers, alone).run())
    assert (report.sent, report.acked, report.rejected) == (4 * COUNT, 4 * COUNT, 0)
    for spec in (*together, alone):
        assert in_log(server.data, spec.name) == list(range(COUNT))
    traffic = server.http.get("/metrics").text
    assert f'mavstream_tuples_in_total{{stream="with_0"}} {COUNT}' in traffic


def test_a_rejected_row_of_one_stream_is_skipped_and_the_others_continue(
    server: RunningServer, tmp_path: Path
) -> None:
    fields = [{"name": "at", "type": "timestamp"}, {"name": "n", "type": "int"}]
    strict = StreamSpec.model_validate(
        {"name": "strict", "fields": fields, "event_time": "at", "max_ahead": "1m"}
    )
    calm = StreamSpec.model_validate({"name": "calm", "fields": fields, "event_time": "at"})
    create(server, strict, calm)
    path = tmp_path / "ahead.csv"
    path.write_text(
        "at,n\n" + "".join(f"{2126 if n % 10 == 3 else 2026}-01-01T00:00:00Z,{n}\n" for n in range(300))
    )
    feeder = Feeder(Address(server.url), Options(skip_rejected=True))
    for spec in (strict, calm):
        feeder.add(spec.name, FileSource(path, spec), parse_rate("3000"))
    report = asyncio.run(asyncio.wait_for(feeder.run(), PATIENCE))
    assert in_log(server.data, "strict") == [n for n in range(300) if n % 10 != 3]
    assert in_log(server.data, "calm") == list(range(300))
    assert (report.streams["strict"].rejected, report.streams["calm"].rejected) == (30, 0)


def test_a_server_without_multi_stream_messages_gets_single_frames(numbers: Path) -> None:
    """A server with the earlier protocol closes the connection on messages that it does not know."""
    frames: list[str] = []

    async def before(socket: ServerConnection) -> None:
        hello = json.loads(await socket.recv())
        if hello.keys() - {"type", "producer", "streams"}:
            await socket.close(4400, "hello: bundles: Extra inputs are not permitted")
            return
        streams = {name: {"last_sequence": 0, "credit": 1 << 20} for name in hello["streams"]}
        welcome = {
            "type": "welcome",
            "producer": hello["producer"],
            "delivery": "process",
            "streams": streams,
        }
        await socket.send(json.dumps({**welcome, "max_frame_bytes": 1 << 20}))
        async for message in socket:
            if isinstance(message, str):
                await socket.send(json.dumps({"type": "ended", "stream": json.loads(message)["stream"]}))
            else:
                header = json.loads(unseal(message)[0])
                frames.append(header["stream"])
                await socket.send(json.dumps({"type": "ack", **header, "credit": 1 << 20}))

    async def main() -> int:
        async with serve(before, "127.0.0.1", 0) as running:
            port = running.sockets[0].getsockname()[1]
            feeder = Feeder(Address(f"http://127.0.0.1:{port}"))
            for name in STREAMS[:2]:
                feeder.add(name, FileSource(numbers, numbered(name)), parse_rate("max"))
            return (await asyncio.wait_for(feeder.run(), PATIENCE)).acked

    assert asyncio.run(main()) == 2 * COUNT
    assert set(frames) == set(STREAMS[:2])
