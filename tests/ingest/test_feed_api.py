"""Producer sessions without a socket, and feeding and subscribing over many sockets at once."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import websockets
from tests.support.servers.hot_readings import removed
from tests.support.servers.running_server import (
    PATIENCE,
    RawProducer,
    RunningServer,
    eventually,
    running_server,
)
from websockets.exceptions import ConnectionClosed

from mavstream_protocol import StreamSpec
from mavstream_protocol.tuples import decode_rows, encode_message
from mavstream_protocol.wire.envelope import seal, unseal
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.core.settings import Settings
from mavstream_server.ingest.connected_producers import ConnectedProducers
from mavstream_server.ingest.producer_session import FeedState, ProducerSession, cut_reason
from mavstream_server.ingest.stream_store import StreamStore
from mavstream_server.ingest.traffic import Traffic
from mavstream_server.testing import ManualClock

SPEC = StreamSpec.model_validate({"name": "s", "fields": [{"name": "n", "type": "int"}]})


class Bench:
    """Sessions over a real store that is flushed by hand."""

    def __init__(self, data: Path) -> None:
        self.settings = Settings(data=data)
        self.catalog = Catalog(self.settings.catalog_file)
        self.producers = ConnectedProducers(self.catalog.producers)
        self.store = StreamStore(self.settings, self.catalog, ManualClock(), producers=self.producers)
        self.store.create(SPEC)
        self.traffic = Traffic()

    def session(self, hello: str | None = "p") -> ProducerSession:
        made = ProducerSession(
            self.store, self.traffic, "process", 1 << 20, lambda: None, self.producers.connected
        )
        if hello is not None:
            made.received(json.dumps({"type": "hello", "producer": hello, "streams": ["s"]}))
            assert received(made)[0]["type"] == "welcome"
        return made

    def close(self) -> None:
        self.store.close()
        self.catalog.close()


def received(session: ProducerSession) -> list[dict[str, Any]]:
    return [json.loads(message) for message in session.take()]


def data(sequence: int, *values: Any) -> str:
    rows = [{"n": value} for value in values]
    return json.dumps({"type": "data", "stream": "s", "sequence": sequence, "rows": rows})


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def test_hello_is_answered_with_the_last_sequences_of_the_producer(bench: Bench) -> None:
    session = bench.session(None)
    session.received('{"type": "hello", "producer": "p", "streams": ["s", "unknown"]}')
    (welcome,) = received(session)
    credit = bench.settings.credit_bytes
    assert welcome == {
        "type": "welcome",
        "producer": "p",
        "delivery": "process",
        "streams": {"s": {"last_sequence": 0, "credit": credit}},
        "max_frame_bytes": 1 << 20,
    }


def test_frames_of_one_flush_get_one_ack(bench: Bench) -> None:
    session = bench.session()
    for sequence in range(1, 6):
        session.received(data(sequence, sequence))
    assert received(session) == []
    bench.store.flush()
    (ack,) = received(session)
    assert (ack["stream"], ack["sequence"]) == ("s", 5)
    assert bench.store.info("s").position == 5


def test_an_ack_of_earlier_frames_is_sent_ahead_of_a_reject(bench: Bench) -> None:
    session = bench.session()
    session.received(data(1, 1))
    bench.store.flush()
    session.received(data(2, "wrong"))
    session.received(data(3, 3))
    messages = received(session)
    assert [message["type"] for message in messages] == ["ack", "reject", "reject"]
    assert [message.get("expected") for message in messages] == [None, 2, 2]
    assert [message["problem"]["code"] for message in messages[1:]] == ["invalid_tuples", "sequence_gap"]
    session.received(data(2, 2))
    bench.store.flush()
    assert received(session)[0]["sequence"] == 2


def test_a_frame_that_is_rejected_after_pending_ones_is_expected_again(bench: Bench) -> None:
    session = bench.session()
    session.received(data(1, 1))
    session.received(data(2, "wrong"))
    assert received(session)[0]["expected"] == 2
    bench.store.flush()
    assert received(session)[0]["sequence"] == 1


def test_all_encodings_are_accepted(bench: Bench) -> None:
    session = bench.session()
    session.received(data(1, 1, 2))
    session.received(json.dumps({"type": "data", "stream": "s", "sequence": 2, "columns": {"n": [3]}}))
    batch = decode_rows(SPEC.schema(), [{"n": 4}])
    session.received(seal(b'{"stream":"s","sequence":3}', encode_message(batch)))
    bench.store.flush()
    assert received(session)[0]["sequence"] == 3
    assert bench.store.info("s").position == 4
    assert (bench.traffic.received["s"], bench.traffic.acked["s"]) == (4, 4)


def test_the_end_is_confirmed_after_the_rows(bench: Bench) -> None:
    session = bench.session()
    session.received(data(1, 1))
    session.received('{"type": "end", "stream": "s"}')
    bench.store.flush()
    assert [message["type"] for message in received(session)] == ["ack", "ended"]


@pytest.mark.parametrize(
    ("state", "message", "reason"),
    [
        (FeedState.NEW, '{"type": "end"}', "in state 'new' expected hello, received 'end'"),
        (FeedState.NEW, b"", "in state 'new' expected hello, received a binary message"),
        (FeedState.FEEDING, '{"type": "hello"}', "in state 'feeding' expected data or end, received 'hello'"),
        (
            FeedState.FEEDING,
            '{"a": 1}',
            "in state 'feeding' expected data or end, received a message",
        ),
    ],
)
def test_an_illegal_message_names_state_expected_and_received(
    bench: Bench, state: FeedState, message: str | bytes, reason: str
) -> None:
    session = bench.session(None if state is FeedState.NEW else "p")
    assert session.state is state
    session.received(message)
    assert session.closing is not None
    assert (session.closing.code, session.closing.reason[: len(reason)]) == (4400, reason)
    session.received(data(1, 1))
    bench.store.flush()
    assert bench.store.info("s").position == 0


def test_the_last_connection_of_a_producer_replaces_the_earlier_one(bench: Bench) -> None:
    first = bench.session()
    first.received(data(1, 1))
    second = bench.session()
    assert first.closing is not None
    assert first.closing.code == 4409
    assert bench.producers.count == 1
    bench.producers.disconnected(first)
    assert bench.producers.count == 1
    # The frame of the first is in the log; the second, which cannot know, sends it again.
    second.received(data(1, 1))
    second.received(data(2, 2))
    bench.store.flush()
    assert received(second)[-1]["sequence"] == 2
    assert bench.store.info("s").position == 2


def test_a_close_reason_is_shortened_to_fit_a_close_frame() -> None:
    assert cut_reason("short") == "short"
    cut = cut_reason("ä" * 200)
    assert len(cut.encode()) <= 123
    assert cut.endswith("...")


STREAM: dict[str, Any] = {
    "name": "texts",
    "fields": [{"name": "n", "type": "int"}, {"name": "text", "type": "string"}],
}
PLAN = {"root": "in", "nodes": {"in": {"op": "source", "stream": "texts"}}}
FRAMES, PER_FRAME, TEXT = 120, 50, 2000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    # Result logs keep what the last two checkpoints need.
    flags = ("--result-bytes", "1MiB", "--checkpoint-interval", "200ms")
    with running_server(tmp_path / "data", *flags) as running:
        assert running.http.post("/v1/streams", json=STREAM).status_code == 201
        yield running


class Watcher:
    """A subscriber that reads until the last row; `rows` counts the received rows, `missed` the others."""

    def __init__(self, address: str, last: int, progress: asyncio.Event) -> None:
        self.address = address
        self.last = last
        self._progress = progress
        self.rows = self.missed = 0
        self.code = 0
        self.opened = asyncio.Event()
        self.go_on = asyncio.Event()
        """A slow one reads nothing before this is set."""

    async def run(self, slow: bool = False) -> None:
        async with self._connect(slow) as connection:
            assert json.loads(await connection.recv())["type"] == "opened"
            self.opened.set()
            if slow:
                await self.go_on.wait()
            try:
                async for message in connection:
                    offset = self._take(message)
                    self._progress.set()
                    if offset == self.last:
                        return
            except ConnectionClosed as closed:
                self.code = closed.rcvd.code if closed.rcvd else 1006

    def _take(self, message: str | bytes) -> int:
        """Count a message, which must continue where the last one ended; returns the offset after it."""
        offset = self.rows + self.missed
        if isinstance(message, bytes):
            header = json.loads(unseal(message)[0])
            assert header["offset"] == offset
            self.rows += header["count"]
        else:
            decoded = json.loads(message)
            assert decoded.get("offset", decoded.get("start")) == offset
            if decoded["type"] == "rows":
                self.rows += len(decoded["rows"])
            else:
                assert (decoded["type"], decoded["reason"]) == ("gap", "retention")
                self.missed += decoded["stop"] - decoded["start"]
        return self.rows + self.missed

    def _connect(self, slow: bool) -> websockets.connect:
        options: dict[str, Any] = {"compression": None, "max_size": None, "ping_interval": None}
        if slow:
            made = socket.socket()
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            host, port = self.address.split("/")[2].split(":")
            made.connect((host, int(port)))
            options |= {"sock": made, "max_queue": 1}
        return websockets.connect(self.address, open_timeout=PATIENCE, **options)


def text(n: int) -> str:
    """Return a text that no other row has, so that the dictionary cannot share it."""
    return (f"{n:06d}" * (TEXT // 6 + 1))[:TEXT]


def resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def test_ten_slow_subscribers_of_a_hundred_block_no_other(server: RunningServer) -> None:
    query = server.http.post("/v1/queries", json={"plan": PLAN}).json()["id"]
    address = server.websocket_url(f"/v1/queries/{query}/results?")
    last = FRAMES * PER_FRAME
    progress = asyncio.Event()
    fast = [Watcher(address + "format=arrow", last, progress) for _ in range(90)]
    # In another format, so that they do not reuse the chunks encoded for the fast ones.
    slow = [
        Watcher(f"{address}format=rows&on_lag={on_lag}", last, progress)
        for on_lag in ["gap"] * 5 + ["disconnect"] * 5
    ]

    async def feed() -> None:
        """Send frames, each as soon as the fast subscribers have nearly all rows before it."""
        async with websockets.connect(server.websocket_url("/v1/feed"), open_timeout=PATIENCE) as producer:
            await producer.send(json.dumps({"type": "hello", "producer": "p"}))
            await producer.recv()
            for sequence in range(1, FRAMES + 1):
                numbers = list(range((sequence - 1) * PER_FRAME, sequence * PER_FRAME))
                columns = {"n": numbers, "text": [text(n) for n in numbers]}
                frame = {"type": "data", "stream": "texts", "sequence": sequence, "columns": columns}
                await producer.send(json.dumps(frame))
                assert json.loads(await producer.recv())["sequence"] == sequence
                while min(watcher.rows for watcher in fast) < (sequence - 4) * PER_FRAME:
                    progress.clear()
                    await progress.wait()

    async def watch() -> None:
        async with asyncio.timeout(4 * PATIENCE), asyncio.TaskGroup() as group:
            quick = [group.create_task(watcher.run()) for watcher in fast]
            for watcher in slow:
                group.create_task(watcher.run(slow=True))
            await asyncio.gather(*(watcher.opened.wait() for watcher in (*fast, *slow)))
            assert server.http.get("/v1/stats").json()["subscribers"] == 100
            before = resident(server.pid)
            await feed()
            await asyncio.gather(*quick)
            assert resident(server.pid) - before < 200 << 20
            eventually(lambda: removed(server, query) > last // 2, "half of the results to be removed")
            for watcher in slow:
                watcher.go_on.set()

    asyncio.run(watch())
    # Fast subscribers miss nothing; slow ones get a gap or are disconnected, as requested.
    assert {watcher.rows for watcher in fast} == {last}
    for watcher in slow[:5]:
        assert watcher.missed > 0
        assert watcher.rows + watcher.missed == last
    assert [watcher.code for watcher in slow[5:]] == [4410] * 5
    eventually(lambda: server.http.get("/v1/stats").json()["subscribers"] == 0, "all to be let go")
    assert server.http.get("/v1/stats").json()["engine_restarts"] == 0


def test_a_producer_that_does_not_read_its_rejects_is_not_read_either(server: RunningServer) -> None:
    before = resident(server.pid)
    frame = json.dumps({"type": "data", "stream": "texts", "sequence": 1, "rows": [{"n": "x" * 1000}]})
    with RawProducer(server, "p", "texts") as producer:
        producer.socket.socket.settimeout(1)

        def send_for_ever() -> None:
            for _ in range(200_000):
                producer.socket.send(frame)

        # The client's own reader stops when its queue is full; then everything backs up to us.
        with pytest.raises((TimeoutError, ConnectionClosed, OSError)):
            send_for_ever()
        assert resident(server.pid) - before < 100 << 20
        assert server.http.get("/livez").status_code == 200
