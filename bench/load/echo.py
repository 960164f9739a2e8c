"""A bare echo server, the baseline of latencies over a websocket."""

from __future__ import annotations

import asyncio
import time

import numpy as np
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from bench.load.producer import WEBSOCKET_OPTIONS


async def echo_latencies(frames: int, size: int, interval_s: float) -> np.ndarray:
    """Return round trips (ms) of frames through a bare echo server on the loopback address."""

    async def echo(socket: ServerConnection) -> None:
        async for message in socket:
            await socket.send(message)

    async with serve(echo, "127.0.0.1", 0, **WEBSOCKET_OPTIONS) as echoing:  # type: ignore[arg-type]
        port = echoing.sockets[0].getsockname()[1]
        async with connect(f"ws://127.0.0.1:{port}", **WEBSOCKET_OPTIONS) as socket:  # type: ignore[arg-type]
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
