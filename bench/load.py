"""Load for a server over real websockets: producers, subscribers, and a bare echo to compare with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import numpy as np
import orjson
import pyarrow as pa
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve

from mavstream_protocol.wire.envelope import seal, unseal

Q1_ANSWER = pa.schema(
    [("ts", pa.timestamp("us", tz="UTC")), ("location", pa.string()), ("fahrenheit", pa.float64())]
)
"""The columns of Q1's answers as they travel."""
_OPTIONS = {"compression": None, "max_size": None, "max_queue": 1024}


class Producer:
    """A producer that tracks its credit and acked frames."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.acked: dict[str, int] = {}
        self._credit: dict[str, int] = {}
        self._under_way: dict[str, list[tuple[int, int]]] = {}
        self._news = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def send(self, stream: str, sequence: int, message: bytes | str) -> None:
        """Send a data message as soon as the stream's credit allows it."""
        while self._must_wait(stream, len(message)):
            self._news.clear()
            await self._news.wait()
        self._under_way.setdefault(stream, []).append((sequence, len(message)))
        await self._socket.send(message)

    def _must_wait(self, stream: str, size: int) -> bool:
        under_way = sum(size for _, size in self._under_way.get(stream, ()))
        return under_way > 0 and under_way + size > self._credit.get(stream, 1 << 20)

    async def all_acked(self, stream: str, sequence: int) -> None:
        """Return when all frames up to a sequence are acked."""
        while self.acked.get(stream, 0) < sequence:
            self._news.clear()
            await self._news.wait()

    async def _read(self) -> None:
        async for text in self._socket:
            message = orjson.loads(text)
            if message["type"] == "reject":
                raise RuntimeError(f"rejected: {message}")
            if message["type"] == "ack":
                stream, sequence = message["stream"], message["sequence"]
                self.acked[stream] = sequence
                self._credit[stream] = message["credit"]
                self._under_way[stream] = [item for item in self._under_way[stream] if item[0] > sequence]
                self._news.set()

    async def close(self) -> None:
        """Stop listening."""
        self._reader.cancel()


@asynccontextmanager
async def producer(url: str, name: str, streams: Sequence[str]) -> AsyncIterator[Producer]:
    """Connect a producer."""
    async with connect(f"{url}/v1/feed", **_OPTIONS) as socket:  # type: ignore[arg-type]
        await socket.send(
            orjson.dumps({"type": "hello", "producer": name, "streams": list(streams)}).decode()
        )
        welcome = orjson.loads(await socket.recv())
        if welcome["type"] != "welcome":
            raise RuntimeError(f"not welcome: {welcome}")
        made = Producer(socket)
        try:
            yield made
        finally:
            await made.close()


def arrow_message(stream: str, sequence: int, batch: pa.RecordBatch) -> bytes:
    """Return a data message with an Arrow record batch."""
    header = orjson.dumps({"stream": stream, "sequence": sequence})
    return seal(header, batch.serialize().to_pybytes())


def columns_message(stream: str, sequence: int, columns: dict[str, list[object]]) -> str:
    """Return a data message with JSON columns."""
    return orjson.dumps({"type": "data", "stream": stream, "sequence": sequence, "columns": columns}).decode()


@dataclass(slots=True)
class Answers:
    """Received results: Arrow batches and their arrival times."""

    schema: pa.Schema
    batches: list[pa.RecordBatch] = field(default_factory=list)
    received: list[int] = field(default_factory=list)
    rows: int = 0

    async def collect(self, socket: ClientConnection, expected: int) -> None:
        """Read until a number of rows was received."""
        while self.rows < expected:
            message = await socket.recv()
            if isinstance(message, str):
                received = orjson.loads(message)
                if received["type"] in ("gap", "closed"):
                    raise RuntimeError(f"answers are missing: {received}")
                continue
            self.received.append(time.time_ns())
            _, payload = unseal(message)
            batch = pa.ipc.read_record_batch(pa.py_buffer(payload), self.schema)
            self.batches.append(batch)
            self.rows += batch.num_rows

    def column(self, name: str) -> np.ndarray:
        """Return a column of all rows."""
        chunks = [batch.column(name).cast(pa.int64()).to_numpy() for batch in self.batches]
        return np.concatenate(chunks) if chunks else np.empty(0, dtype=np.int64)

    def receipt_times(self) -> np.ndarray:
        """Return when each row was there, in nanoseconds."""
        return np.repeat(self.received, [batch.num_rows for batch in self.batches])


@asynccontextmanager
async def subscription(url: str, query: object) -> AsyncIterator[ClientConnection]:
    """Subscribe to a query's answers as Arrow batches."""
    async with connect(f"{url}/v1/queries/{query}/results?format=arrow", **_OPTIONS) as socket:  # type: ignore[arg-type]
        yield socket


async def echo_latencies(frames: int, size: int, interval_s: float) -> np.ndarray:
    """Return round trips (ms) of frames through a bare echo server on the loopback address."""

    async def echo(socket: ServerConnection) -> None:
        async for message in socket:
            await socket.send(message)

    async with serve(echo, "127.0.0.1", 0, **_OPTIONS) as echoing:  # type: ignore[arg-type]
        port = echoing.sockets[0].getsockname()[1]
        async with connect(f"ws://127.0.0.1:{port}", **_OPTIONS) as socket:  # type: ignore[arg-type]
            taken = []
            payload = bytes(size)
            begin = time.perf_counter()
            for number in range(frames):
                due = begin + number * interval_s
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                await socket.send(payload)
                await socket.recv()
                taken.append(1000 * (time.perf_counter() - due))
    return np.array(taken)
