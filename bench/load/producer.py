"""An asynchronous producer over a websocket, for benchmarks that feed from their own process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import orjson
import pyarrow as pa
from websockets.asyncio.client import ClientConnection, connect

from mavstream_protocol.wire.envelope import seal

WEBSOCKET_OPTIONS = {"compression": None, "max_size": None, "max_queue": 1024}


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
        credit = self._credit.get(stream, 1 << 20)
        under_way = sum(size for _, size in self._under_way.get(stream, ()))
        return credit == 0 or (under_way > 0 and under_way + size > credit)

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
    async with connect(f"{url}/v1/feed", **WEBSOCKET_OPTIONS) as socket:  # type: ignore[arg-type]
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
