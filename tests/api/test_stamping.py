"""Arrival times of websocket messages."""

from __future__ import annotations

import asyncio
import socket
import time

import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from websockets.asyncio.client import connect

from mavstream_server.api.websockets.stamping import StampedWebSocket, received_at


async def _serve(ws: object, sent: list[int], stamps: list[tuple[int, int]]) -> None:
    """Send three messages, each after the answer to the one before, to an application that records stamps."""

    async def noting(websocket: WebSocket) -> None:
        await websocket.accept()
        async for _ in websocket.iter_text():
            stamps.append((received_at(websocket), time.perf_counter_ns()))
            await websocket.send_text("noted")

    listener = socket.create_server(("127.0.0.1", 0))
    app = Starlette(routes=[WebSocketRoute("/", noting)])
    server = uvicorn.Server(uvicorn.Config(app, ws=ws, log_config=None, lifespan="off"))
    serving = asyncio.create_task(server.serve([listener]))
    async with connect(f"ws://127.0.0.1:{listener.getsockname()[1]}/") as client:
        for _ in range(3):
            sent.append(time.perf_counter_ns())
            await client.send("here")
            await client.recv()
    server.should_exit = True
    await serving


def test_the_arrival_of_a_message_is_after_sending_and_before_receiving() -> None:
    sent: list[int] = []
    stamps: list[tuple[int, int]] = []
    asyncio.run(_serve(StampedWebSocket, sent, stamps))
    assert len(stamps) == 3
    for begin, (stamp, taken) in zip(sent, stamps, strict=True):
        assert begin <= stamp <= taken


def test_other_websocket_implementations_give_no_stamp() -> None:
    stamps: list[tuple[int, int]] = []
    asyncio.run(_serve("websockets-sansio", [], stamps))
    assert [stamp for stamp, _ in stamps] == [0, 0, 0]
