"""Reconnecting to a server that has other frames than the feeder sent."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection, serve

from mavstream_feeder import Address, Feeder, FeedLost, FileSource, Options, parse_rate
from mavstream_protocol import StreamSpec
from mavstream_protocol.wire.envelope import unseal

SPEC = StreamSpec.model_validate({"name": "numbers", "fields": [{"name": "n", "type": "int"}]})
TIMEOUT = 30.0


@pytest.mark.parametrize(
    ("later", "complaint"),
    [
        (1, "acknowledged frame 3 and now has only 1: its data directory was changed"),
        (
            99,
            "the server has frame 99 of this producer, which sent only .*: another feeder uses the same name",
        ),
    ],
    ids=["fewer", "more"],
)
def test_a_server_that_lost_frames_or_has_unknown_ones_ends_the_feed(
    tmp_path: Path, later: int, complaint: str
) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("n\n" + "".join(f"{n}\n" for n in range(100)))
    lasts = [0, later]

    async def breaking(socket: ServerConnection) -> None:
        """Acknowledge three frames on the first connection and break it."""
        await socket.recv()
        streams = {"numbers": {"last_sequence": lasts.pop(0), "credit": 1 << 20}}
        welcome = {"type": "welcome", "producer": "p", "delivery": "process", "streams": streams}
        await socket.send(json.dumps({**welcome, "max_frame_bytes": 1 << 20}))
        while True:
            message = await socket.recv(decode=False)
            if json.loads(unseal(message)[0])["sequence"] == 3:
                await socket.send(
                    json.dumps({"type": "ack", "stream": "numbers", "sequence": 3, "credit": 1 << 20})
                )
                await socket.close(1011, "broken")

    async def main() -> None:
        async with serve(breaking, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            feeder = Feeder(Address(f"http://127.0.0.1:{port}"), Options(frame_rows=10))
            feeder.add("numbers", FileSource(path, SPEC), parse_rate("max"))
            await asyncio.wait_for(feeder.run(), TIMEOUT)

    with pytest.raises(FeedLost, match=complaint):
        asyncio.run(main())
