"""Multi-stream messages: frames of several streams in one message, handled one by one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.services.stream_store import (
    EVENTS,
    NUMBERS,
    Producer,
    Server,
    events,
    limited_files,
    numbers,
    spec,
)

from mavstream_protocol.streams import StreamSpec
from mavstream_protocol.tuples import arrow_schema, decode_columns, encode_message
from mavstream_protocol.wire.envelope import seal
from mavstream_protocol.wire.feed import Hello, MultiStreamHeader, share
from mavstream_server.log import Frame
from mavstream_server.testing import ManualClock

TEXTS = {
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "text", "type": "string", "nullable": True},
        {"name": "on", "type": "bool"},
    ]
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path, ManualClock()) as made:
        yield made


@pytest.fixture
def feeding(server: Server) -> Callable[..., Producer]:
    """Start a server with streams a, b and c of one schema; return a producer of them."""

    def start(
        base: dict[str, Any] = NUMBERS, settings: dict[str, Any] | None = None, **changes: Any
    ) -> Producer:
        store = server.start(**(settings or {}))
        for name in "abc":
            store.create(spec(base, name=name, **changes))
        return Producer(server, *"abc")

    return start


def test_each_frame_of_a_multi_stream_message_goes_to_its_own_stream(
    server: Server, feeding: Callable[..., Producer]
) -> None:
    producer = feeding()
    producer.send(numbers(1, 2, 3, 4, 5, 6), ("a", 1, 1), ("b", 1, 3), ("a", 2, 2))
    assert producer.acked() == {"a": 2, "b": 1}
    assert (server.values("a"), server.values("b")) == ([1, 5, 6], [2, 3, 4])
    assert server.rung == 1
    assert server.store.counts("a")[:2] == (2, 3)
    assert (producer.traffic.received["a"], producer.traffic.acked["a"]) == (3, 3)


def test_one_message_has_all_acks_with_their_credit(feeding: Callable[..., Producer]) -> None:
    producer = feeding(settings={"credit_bytes": 4096})
    producer.send(numbers(1, 2), ("a", 1, 1), ("c", 1, 1))
    assert producer.received() == [{"type": "acks", "streams": {"a": [1, 4096], "c": [1, 4096]}}]
    assert producer.received() == []


def test_rows_have_the_arrival_time_of_their_message(
    server: Server, feeding: Callable[..., Producer]
) -> None:
    producer = feeding()
    arrivals = []
    for sequence in (1, 2):
        server.clock.advance(nanoseconds=1_000_000)
        arrivals.append(server.clock.now())
        producer.send(numbers(1, 2), ("a", sequence, 1), ("b", sequence, 1))
    # A message of one frame waits for the flush as well.
    producer.session.received(json.dumps({"type": "data", "stream": "a", "sequence": 3, "rows": [{"n": 3}]}))
    server.clock.advance(seconds=1)
    producer.received()
    assert server.arrivals("a") == [*arrivals, arrivals[-1]]
    assert server.arrivals("b") == arrivals


def test_a_repeated_frame_is_acked_again_and_the_others_are_appended(
    server: Server, feeding: Callable[..., Producer]
) -> None:
    producer = feeding()
    producer.send(numbers(1, 2), ("a", 1, 1), ("b", 1, 1))
    producer.send(numbers(1, 2, 3), ("a", 1, 1), ("b", 2, 1), ("c", 1, 1))
    assert producer.acked() == {"a": 1, "b": 2, "c": 1}
    assert (server.values("a"), server.values("b")) == ([1], [1 + 1, 2])
    assert producer.traffic.repeated["a"] == 1


def test_a_frame_with_bad_rows_is_rejected_alone_by_its_own_row_numbers(
    server: Server, feeding: Callable[..., Producer]
) -> None:
    producer = feeding(EVENTS)
    schema = spec(EVENTS).schema()
    times = pa.array([1, 2, 3, None, 5, 6], pa.int64()).cast(pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_arrays([times, pa.array(["x"] * 6)], schema=arrow_schema(schema))
    producer.send(batch, ("a", 1, 2), ("b", 1, 3), ("c", 1, 1))
    reject, acks = producer.received()
    assert (reject["stream"], reject["sequence"], reject["expected"]) == ("b", 1, 1)
    assert [item["pointer"] for item in reject["problem"]["errors"]] == ["rows/1/at"]
    assert sorted(acks["streams"]) == ["a", "c"]
    producer.send(events(3, 4, 5), ("b", 1, 1), ("c", 2, 2))
    assert producer.acked() == {"b": 1, "c": 2}


@pytest.mark.parametrize(
    ("stream", "code"),
    [("unknown", "unknown_stream"), ("other", "invalid_tuples")],
    ids=["unknown", "schema"],
)
def test_a_frame_of_an_unknown_or_unlike_stream_is_rejected_alone(
    server: Server, feeding: Callable[..., Producer], stream: str, code: str
) -> None:
    producer = feeding()
    server.store.create(StreamSpec.model_validate({"name": "other", **TEXTS}))
    producer.send(numbers(1, 2, 3), ("a", 1, 1), (stream, 1, 1), ("b", 1, 1))
    reject, acks = producer.received()
    assert (reject["stream"], reject["problem"]["code"]) == (stream, code)
    assert sorted(acks["streams"]) == ["a", "b"]
    if stream == "other":
        assert "other fields than 'a'" in reject["problem"]["errors"][0]["detail"]
        assert server.store.info("other").position == 0
    # The fields of unknown streams are not known, so their rows are not checked.
    producer.send(numbers(1), ("unknown", 1, 1))
    assert [message["problem"]["code"] for message in producer.received()] == ["unknown_stream"]


@pytest.mark.parametrize("broken", [False, True], ids=["rows", "bytes"])
def test_a_message_that_contradicts_its_header_is_rejected_frame_by_frame(
    server: Server, feeding: Callable[..., Producer], broken: bool
) -> None:
    producer = feeding()
    batch = b"nonsense" if broken else encode_message(numbers(1, 2, 3))
    producer.session.received(seal(b'{"frames":[["a",1,1],["b",1,1]]}', batch))
    messages = producer.received()
    assert [(message["type"], message["stream"]) for message in messages] == [
        ("reject", "a"),
        ("reject", "b"),
    ]
    expected = "cannot be read" if broken else "the frames in the header have 2 rows, the message has 3"
    assert all(expected in message["problem"]["errors"][0]["detail"] for message in messages)
    producer.send(numbers(1, 2), ("a", 1, 1), ("b", 1, 1))
    assert producer.acked() == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ('{"frames":[]}', "the header of a multi-stream message has 'frames' only"),
        ('{"frames":[["a",1,1]],"stream":"a"}', "the header of a multi-stream message has 'frames' only"),
        ('{"frames":{"a":1}}', "the header of a multi-stream message has 'frames' only"),
        (
            '{"frames":[["a",1]]}',
            "a frame of a multi-stream message is [stream, sequence, rows], got ['a', 1]",
        ),
        ('{"frames":[[1,1,1]]}', "a data message needs 'stream'"),
        ('{"frames":[["a",0,1]]}', "a data message needs 'sequence'"),
        ('{"frames":[["a",1,0]]}', "a frame of a multi-stream message has 1 row or more, got 0"),
        ('{"frames":[["a",1,true]]}', "a frame of a multi-stream message has 1 row or more, got True"),
    ],
)
def test_an_invalid_header_closes_the_connection(
    server: Server, feeding: Callable[..., Producer], header: str, reason: str
) -> None:
    producer = feeding()
    producer.session.received(seal(header.encode(), encode_message(numbers(1))))
    assert producer.session.closing is not None
    assert producer.session.closing.code == 4400
    assert producer.session.closing.reason.startswith(reason)
    assert server.values("a") == []


def test_producers_that_do_not_announce_multi_stream_messages_get_single_acks(
    server: Server, feeding: Callable[..., Producer]
) -> None:
    feeding()
    producer = Producer(server, "a", bundles=False)
    producer.session.received(seal(b'{"stream":"a","sequence":1}', encode_message(numbers(1))))
    assert [message["type"] for message in producer.received()] == ["ack"]
    producer.send(numbers(1), ("a", 2, 1))
    assert producer.session.closing is not None
    assert "need a hello with 'bundles': true" in producer.session.closing.reason
    # Older servers refuse a hello that announces them.
    assert "bundles" not in Hello(producer="p").model_dump_json()


def test_a_frame_uses_credit_by_its_share_of_the_message(
    server: Server, feeding: Callable[..., Producer]
) -> None:
    assert [share(1000, rows, 7) for rows in (1, 2, 4)] == [143, 286, 572]
    producer = feeding(settings={"credit_bytes": 1 << 10})
    large = list(range(600))
    producer.send(numbers(*large), ("a", 1, 10), ("b", 1, 290), ("c", 1, 300))
    producer.send(numbers(*large), ("a", 2, 10), ("b", 2, 290), ("c", 2, 300))
    messages = producer.received()
    assert [(message["stream"], message["problem"]["code"]) for message in messages[:2]] == [
        ("b", "over_credit"),
        ("c", "over_credit"),
    ]
    assert messages[2]["streams"]["a"][0] == 2
    assert len(server.values("a")) == 20


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        ({}, {}),
        ({"delivery": "sync"}, {}),
        ({"max_disk_bytes": 1 << 24}, {}),
        ({}, {"quota": "1MB"}),
    ],
    ids=["joined", "sync", "disk_limit", "quota"],
)
@pytest.mark.parametrize("nulls", [False, True])
def test_the_log_has_the_same_rows_with_and_without_multi_stream_messages(
    server: Server,
    feeding: Callable[..., Producer],
    settings: dict[str, Any],
    changes: dict[str, Any],
    nulls: bool,
) -> None:
    producer = feeding({"name": "a", **TEXTS}, settings, **changes)
    schema = spec({"name": "a", **TEXTS}).schema()
    plain = Producer(server, bundles=False)
    for name in "abc":
        server.store.create(spec({"name": f"plain_{name}", **TEXTS}, **changes))
    for sequence in range(1, 41):
        sizes = [sequence % 3 + 1, 1, sequence % 20 + 1]
        total = sum(sizes)
        texts = [None if nulls and n % 5 == 0 else f"text {(n * sequence) % 17}" for n in range(total)]
        columns = {"n": list(range(total)), "text": texts, "on": [n % 2 == 0 for n in range(total)]}
        batch = decode_columns(schema, columns)
        producer.send(batch, *zip("abc", [sequence] * 3, sizes, strict=True))
        start = 0
        for name, size in zip("abc", sizes, strict=True):
            header = json.dumps({"stream": f"plain_{name}", "sequence": sequence}).encode()
            alone = pa.RecordBatch.from_pylist(batch.slice(start, size).to_pylist(), batch.schema)
            plain.session.received(seal(header, encode_message(alone)))
            start += size
        if sequence % 4 == 0:
            assert producer.acked() == dict.fromkeys("abc", sequence)
        server.clock.advance(seconds=0.001)
    server.again()
    for name in "abc":
        found, expected = (
            [[*row] for frame in frames if frame.rows for row in zip(*_columns(frame), strict=True)]
            for frames in (server.frames(name), server.frames(f"plain_{name}"))
        )
        assert found == expected
        assert server.arrivals(name) == server.arrivals(f"plain_{name}")
        assert server.store.last_sequence("p", name) == 40
        assert server.frames(name)[-1].sequence == 40


def _columns(frame: Frame) -> list[list[Any]]:
    fields = frame.segment.layout.fields
    return [frame.column(field.name).to_list(field.type) for field in fields]


def test_a_multi_stream_message_is_appended_after_pending_frames(
    server: Server, feeding: Callable[..., Producer]
) -> None:
    producer = feeding()
    producer.send(numbers(0, 0), ("a", 1, 1), ("b", 1, 1))
    producer.received()
    producer.session.received(json.dumps({"type": "data", "stream": "a", "sequence": 2, "rows": [{"n": 1}]}))
    producer.send(numbers(2, 3, 4), ("a", 3, 1), ("b", 2, 1), ("c", 2, 1))
    messages = producer.received()
    assert [message["type"] for message in messages] == ["reject", "acks"]
    assert (messages[0]["stream"], messages[0]["expected"]) == ("c", 1)
    assert messages[0]["problem"]["code"] == "sequence_gap"
    assert server.values("a") == [0, 1, 2]


def test_a_full_disk_rejects_frames_of_a_multi_stream_message_and_loses_none(
    server: Server, feeding: Callable[..., Producer]
) -> None:
    producer = feeding(retention={"bytes": "1MB"})
    producer.send(numbers(1, 2), ("a", 1, 1), ("b", 1, 1))
    producer.received()
    undo = limited_files(300_000)
    try:
        producer.send(numbers(*range(40_001)), ("a", 2, 40_000), ("b", 2, 1))
        reject, acks = producer.received()
    finally:
        undo()
    assert (reject["stream"], reject["expected"], reject["problem"]["code"]) == ("a", 2, "storage_full")
    assert list(acks["streams"]) == ["b"]
    producer.send(numbers(3, 4), ("a", 2, 1), ("b", 3, 1))
    assert producer.acked() == {"a": 2, "b": 3}
    assert (server.values("a"), server.values("b")) == ([1, 3], [2, 40_000, 4])


def test_a_complete_stream_rejects_frames_of_multi_stream_messages(
    server: Server, feeding: Callable[..., Producer]
) -> None:
    producer = feeding()
    server.store.complete("a")
    producer.send(numbers(1, 2), ("a", 1, 1), ("b", 1, 1))
    messages = {message["type"]: message for message in producer.received()}
    assert messages["reject"]["problem"]["code"] == "stream_complete"
    assert list(messages["acks"]["streams"]) == ["b"]


def test_the_header_is_encoded_as_the_protocol_documents() -> None:
    header = MultiStreamHeader.model_validate_json('{"frames":[["a",1,2],["b",7,1]]}')
    assert header.frames == (("a", 1, 2), ("b", 7, 1))
    for wrong in ('{"frames":[]}', '{"frames":[["a",0,1]]}', '{"frames":[["a",1,0]]}'):
        with pytest.raises(ValueError, match="frames"):
            MultiStreamHeader.model_validate_json(wrong)
