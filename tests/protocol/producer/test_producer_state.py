"""A producer without a websocket: messages of the server in, messages to it out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mavstream_protocol.producer import (
    Frame,
    ProducerState,
    RefusalKind,
    Resumed,
    SendWindow,
    UnexpectedMessage,
)
from mavstream_protocol.wire.envelope import unseal


def message(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def welcome(**streams: tuple[int, int]) -> bytes:
    known = {name: {"last_sequence": last, "credit": credit} for name, (last, credit) in streams.items()}
    return message(type="welcome", producer="p", delivery="process", streams=known, max_frame_bytes=5000)


def ack(stream: str, sequence: int, credit: int) -> bytes:
    return message(type="ack", stream=stream, sequence=sequence, credit=credit)


def started(*streams: str, frames: int = 2) -> ProducerState:
    """Return a producer that has sent some frames of each stream."""
    state = ProducerState("p")
    for name in streams:
        state.windows[name] = SendWindow(name)
    known = state.read_welcome(welcome(**dict.fromkeys(streams, (0, 1000)))).streams
    for name, window in state.windows.items():
        assert window.resume(known[name].last_sequence, known[name].credit) is Resumed.CONTINUED
        for _ in range(frames):
            window.add(Frame(1, 100, b"rows"))
        assert len(sent(state, name)) == frames
    return state


def sent(state: ProducerState, stream: str) -> list[Any]:
    """Return the messages that are sent now: sequence numbers, and the type of other messages."""
    found: list[Any] = []
    for each in state.outgoing(state.windows[stream]):
        if isinstance(each, bytes):
            header, payload = unseal(each)
            assert payload == b"rows"
            found.append(json.loads(header)["sequence"])
        else:
            found.append(json.loads(each)["type"])
    return found


def reject(stream: str, sequence: int, expected: int, status: int, code: str = "no") -> bytes:
    problem = {"title": "No", "status": status, "code": code, "detail": "because"}
    return message(type="reject", stream=stream, sequence=sequence, expected=expected, problem=problem)


def test_hello_names_the_streams_and_announces_multi_stream_messages_only_if_asked() -> None:
    state = started("a", "b")
    assert json.loads(state.hello()) == {"type": "hello", "producer": "p", "streams": ["a", "b"]}
    assert json.loads(state.hello(multi_stream=True))["bundles"] is True
    assert state.max_frame_bytes == 5000


@pytest.mark.parametrize(
    "acks",
    [
        [ack("a", 2, 7), ack("b", 1, 9)],
        [ack("a", 2, 7).decode(), ack("b", 1, 9).decode()],
        [message(type="acks", streams={"a": [2, 7], "b": [1, 9]})],
    ],
    ids=["one by one", "as text", "together"],
)
def test_acks_are_routed_to_their_send_windows(acks: list[bytes | str]) -> None:
    state = started("a", "b")
    for each in acks:
        received = state.receive(each)
        assert (received.sendable, received.refusal) == (False, None)
    assert [(window.acked, window.credit) for window in state.windows.values()] == [(2, 7), (1, 9)]


def test_an_ack_says_whether_frames_waited_for_its_credit() -> None:
    state = started("a")
    state.windows["a"].hold()
    state.windows["a"].add(Frame(1, 100, b"rows"))
    assert sent(state, "a") == []
    assert state.receive(ack("a", 1, 1000)).sendable
    assert sent(state, "a") == [3]


def test_an_ack_of_a_removed_stream_is_ignored() -> None:
    state = started("a", "b")
    del state.windows["b"]
    state.receive(message(type="acks", streams={"b": [1, 9], "a": [1, 9]}))
    assert state.windows["a"].acked == 1


@pytest.mark.parametrize("status", [429, 503, 507])
def test_a_transient_rejection_keeps_the_frame(status: int) -> None:
    state = started("a", frames=3)
    received = state.receive(reject("a", 2, 2, status))
    assert received.refusal is not None
    assert received.refusal.kind is RefusalKind.TRANSIENT
    # Later frames are rejected only for their sequence, which adds no information.
    assert state.receive(reject("a", 3, 2, 409, "sequence_gap")).refusal is None
    assert sent(state, "a") == [2, 3]


def test_a_permanent_rejection_names_the_frame_to_drop() -> None:
    state = started("a", frames=3)
    refusal = state.receive(reject("a", 1, 1, 422)).refusal
    assert refusal is not None
    assert (refusal.kind, refusal.window.stream, refusal.problem.code) == (RefusalKind.PERMANENT, "a", "no")
    assert refusal.frame is not None
    refusal.window.replace_next(None)
    assert sent(state, "a") == [1, 2]


def test_a_removed_stream_is_reported_whatever_sequence_is_expected() -> None:
    state = started("a", frames=3)
    refusal = state.receive(reject("a", 3, 1, 404)).refusal
    assert refusal is not None
    assert (refusal.kind, refusal.frame) == (RefusalKind.STREAM_GONE, None)


def test_the_end_is_sent_after_all_frames_and_confirmed_or_refused() -> None:
    state = started("a", "b")
    for window in state.windows.values():
        window.end()
    assert sent(state, "a") == []
    for stream in state.windows:
        assert state.receive(ack(stream, 2, 1000)).sendable
        assert sent(state, stream) == ["end"]
        assert sent(state, stream) == []
    state.receive(message(type="ended", stream="a"))
    refusal = state.receive(reject("b", 0, 3, 409)).refusal
    assert refusal is not None
    assert refusal.kind is RefusalKind.END
    assert [window.ended for window in state.windows.values()] == [True, False]
    assert not any(window.busy for window in state.windows.values())


@pytest.mark.parametrize(
    ("received", "complaint"),
    [
        (b"hm", "expected a message of the feed, got b'hm'"),
        (message(type="ackk"), "expected a message of the feed"),
        (message(type="acks", stream="a"), "expected a message of the feed"),
        (welcome(a=(0, 1)), "'welcome' twice"),
        (reject("a", 9, 9, 422), "frame 9 of stream 'a' was rejected and is not in flight"),
    ],
)
def test_an_unexpected_message_is_an_error(received: bytes, complaint: str) -> None:
    with pytest.raises(UnexpectedMessage, match=complaint):
        started("a").receive(received)
    with pytest.raises(UnexpectedMessage, match="expected 'welcome' from the server, got 'ended'"):
        started("a").read_welcome(message(type="ended", stream="a"))
