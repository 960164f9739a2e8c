"""A feeder whose websocket is refused at the handshake gives up with the server's reason."""

from __future__ import annotations

import asyncio

import pytest

from mavstream_feeder.errors import FeedLost
from mavstream_feeder.sending.link import Address, Link, Patience
from mavstream_protocol.producer import ProducerState
from mavstream_server.api.access.cross_site import UnknownHost
from mavstream_server.api.problems import raw_response


def test_a_refused_handshake_ends_the_feed_with_its_reason() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw_response(UnknownHost("'x' is not a name of this server: use its address")))
        await writer.drain()
        writer.close()

    async def scenario() -> None:
        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            link = Link(Address(f"http://127.0.0.1:{port}"), ProducerState("p"), Patience())
            with pytest.raises(FeedLost, match=r"\(421\): 'x' is not a name of this server"):
                await link.open()

    asyncio.run(scenario())
