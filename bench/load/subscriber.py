"""An asynchronous subscriber over a websocket, for benchmarks that receive in their own process."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import numpy as np
import orjson
import pyarrow as pa
from websockets.asyncio.client import ClientConnection, connect

from bench.load.producer import WEBSOCKET_OPTIONS
from mavstream_protocol.wire.envelope import unseal

Q1_ANSWER = pa.schema(
    [("ts", pa.timestamp("us", tz="UTC")), ("location", pa.string()), ("fahrenheit", pa.float64())]
)
"""The columns of Q1's answers as they travel."""


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
    async with connect(f"{url}/v1/queries/{query}/results?format=arrow", **WEBSOCKET_OPTIONS) as socket:  # type: ignore[arg-type]
        yield socket
