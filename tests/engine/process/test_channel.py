"""The control channel: fragmented packets, invalid messages, and writes that never block the engine."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable, Iterator

import pytest

from mavstream_protocol.classes import QueryClass
from mavstream_server.engine.process.channel import (
    HEADER,
    MOST_BYTES,
    EngineEnd,
    MalformedMessage,
    Packet,
    Packets,
    encode,
)
from mavstream_server.engine.process.doorbell import Doorbell
from mavstream_server.engine.process.events import Event, QueryEnded
from mavstream_server.engine.process.messages import Done, Failed, SetClass, StopQuery
from mavstream_server.supervisor.caller import Caller, EngineRefused, EngineUnavailable


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def readable(fd: int, timeout_ms: int = 0) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_ms))


@pytest.mark.parametrize("piece", [1, 3, 12, 13, 1000])
def test_packets_are_reassembled_however_they_are_fragmented(piece: int) -> None:
    sent = [
        (1, StopQuery("q")),
        (2, SetClass(QueryClass(name="alarms", priority=9))),
        (0, QueryEnded("q", "failed", "why")),
    ]
    data = b"".join(encode(number, message) for number, message in sent)
    packets = Packets()
    got = [p for i in range(0, len(data), piece) for p in packets.feed(data[i : i + piece])]
    assert [(packet.number, packet.message()) for packet in got] == sent


def test_bytes_that_are_not_a_message_are_reported_with_their_number() -> None:
    with pytest.raises(MalformedMessage, match="message 7 of 4 bytes cannot be read"):
        Packet(7, b"nope").message()


def test_a_message_that_cannot_be_pickled_is_not_sent() -> None:
    with pytest.raises(MalformedMessage, match="a function cannot be sent"):
        encode(1, lambda: None)


def test_a_length_above_the_maximum_breaks_the_channel() -> None:
    with pytest.raises(MalformedMessage, match="the channel is broken"):
        list(Packets().feed(HEADER.pack(MOST_BYTES + 1, 1)))


def test_the_engine_never_waits_for_a_reader(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    end = EngineEnd(theirs)
    text = "x" * 1_000_000
    for _ in range(5):
        end.send(0, QueryEnded("q", "failed", text))
    assert end.backed_up
    packets, got = Packets(), 0
    while got < 5:
        got += len(list(packets.feed(ours.recv(1 << 20))))
        end.flush()
    assert not end.backed_up


def test_the_engine_detects_that_the_other_side_has_closed(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    end = EngineEnd(theirs)
    ours.sendall(encode(1, StopQuery("q")))
    ours.close()
    end.receive()
    end.receive()
    assert [packet.message() for packet in end.received] == [StopQuery("q")]
    assert end.closed
    end.send(1, Done())  # the other side has closed
    assert not end.backed_up


def test_replies_are_matched_to_calls_and_events_go_to_the_listener(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    end = EngineEnd(theirs)
    received: list[Event] = []

    async def talk() -> None:
        caller = await Caller.connect(ours, received.append)
        calls = [asyncio.create_task(caller.call(StopQuery(name), 10)) for name in "abc"]
        while len(end.received) < 3:
            assert await asyncio.to_thread(readable, end.fileno(), 10_000)
            end.receive()
        first, second, third = (packet.number for packet in end.received)
        end.send(third, Done())
        end.send(0, QueryEnded("z", "finished", None))
        end.send(99, Done())  # answers nothing
        end.send(first, Failed("wrong_state", "it has ended"))
        assert await calls[2] is None
        with pytest.raises(EngineRefused, match="it has ended") as refused:
            await calls[0]
        assert (refused.value.code, refused.value.status) == ("wrong_state", 409)
        assert received == [QueryEnded("z", "finished", None)]
        end.close()
        with pytest.raises(EngineUnavailable, match="died before it answered"):
            await calls[1]
        await asyncio.wait_for(caller.gone(), 10)
        with pytest.raises(EngineUnavailable, match="is gone"):
            await caller.call(StopQuery("d"), 10)
        await caller.close()
        assert second

    asyncio.run(talk())


def test_a_call_without_a_reply_times_out(pair: tuple[socket.socket, socket.socket]) -> None:
    async def talk() -> None:
        caller = await Caller.connect(pair[0], lambda event: None)
        with pytest.raises(EngineUnavailable, match=r"did not answer within 0\.01 s"):
            await caller.call(StopQuery("q"), 0.01)
        await caller.close()

    asyncio.run(talk())


@pytest.mark.parametrize("make", [Doorbell.create, Doorbell.create_from_sockets])
def test_a_doorbell_wakes_once_for_many_rings(make: Callable[[], Doorbell]) -> None:
    bell = make()
    assert not readable(bell.hear_fd)
    assert not bell.silence()
    for _ in range(100_000):  # more than a socket takes
        bell.ring()
    assert readable(bell.hear_fd)
    assert bell.silence()
    assert not readable(bell.hear_fd)
    bell.close()
    bell.ring()
    bell.close()
