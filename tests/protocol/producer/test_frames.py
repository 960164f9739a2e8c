"""Frames and multi-stream messages: encoding on the wire, and the bytes that count against credit."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from mavstream_protocol import Schema, StreamSpec
from mavstream_protocol.producer import (
    Frame,
    SendWindow,
    encode_batch,
    frame_message,
    make_frames,
    multi_stream_message,
)
from mavstream_protocol.producer.frames import without_rows
from mavstream_protocol.tuples import decode_columns, decode_message, decode_rows
from mavstream_protocol.wire.envelope import unseal
from mavstream_protocol.wire.feed import DataHeader, Format, MultiStreamHeader, from_producer, share

MANY = 1 << 20
LATE = 123_456_789_012


def schema() -> Schema:
    fields = [{"name": "n", "type": "int"}, {"name": "text", "type": "string"}]
    return StreamSpec.model_validate({"name": "any", "fields": fields}).schema()


SCHEMA = schema()


def rows(*numbers: int) -> pa.RecordBatch:
    return decode_columns(SCHEMA, {"n": list(numbers), "text": [f"row {n}" for n in numbers]})


def window(name: str, credit: int = 10_000, last: int = 0) -> SendWindow:
    made = SendWindow(name, max_in_flight=8)
    made.resume(last, credit)
    return made


def next_message(window: SendWindow) -> tuple[int, bytes, Frame]:
    due = window.next_frame()
    assert due is not None
    message = frame_message(window.stream, *due)
    assert isinstance(message, bytes)
    return due[0], message, due[1]


@pytest.mark.parametrize("form", list(Format))
def test_a_frame_is_a_message_of_the_protocol(form: Format) -> None:
    batch = rows(1, 2, 3)
    (frame,) = make_frames("readings", batch, MANY, form, source_row=5, keep_rows=True)
    assert (frame.rows, frame.source_row) == (3, 5)
    message = frame_message("readings", LATE, frame, form)
    assert len(message) <= frame.size
    if isinstance(message, bytes):
        header, payload = unseal(message)
        assert DataHeader.model_validate_json(header) == DataHeader(stream="readings", sequence=LATE)
        assert decode_message(SCHEMA, payload).equals(batch)
        return
    data: Any = from_producer.validate_json(message)
    assert (data.type, data.stream, data.sequence) == ("data", "readings", LATE)
    decode, part = (decode_rows, data.rows) if form is Format.ROWS else (decode_columns, data.columns)
    assert decode(SCHEMA, part).equals(batch)


@pytest.mark.parametrize("form", list(Format))
def test_a_batch_is_split_into_messages_below_the_maximum_size(form: Format) -> None:
    batch = decode_columns(SCHEMA, {"n": list(range(2000)), "text": ["x" * (n % 50) for n in range(2000)]})
    frames = list(make_frames("readings", batch, 4096, form, keep_rows=True))
    assert len(frames) > 10
    assert all(len(frame_message("readings", 10**15, frame, form)) <= frame.size <= 4096 for frame in frames)
    assert pa.concat_batches([frame.own_rows for frame in frames]).equals(batch)
    # One row is sent however long it is.
    assert [part.rows for part in encode_batch(batch.slice(0, 2), 1, form)] == [1, 1]
    assert list(encode_batch(batch.slice(0, 0), 4096, form)) == []


@pytest.mark.parametrize("form", list(Format))
def test_rows_can_be_left_out_of_a_frame(form: Format) -> None:
    (frame,) = make_frames("readings", rows(1, 2, 3), MANY, form, source_row=7, keep_rows=True)
    rest = without_rows("readings", frame, {1}, form)
    assert rest is not None
    assert (rest.rows, rest.source_row) == (2, 7)
    assert rest.own_rows.equals(rows(1, 3))
    assert len(frame_message("readings", 1, rest, form)) <= rest.size
    assert without_rows("readings", frame, {0, 1, 2}, form) is None


def test_a_multi_stream_message_carries_a_frame_per_stream_and_each_window_counts_its_share() -> None:
    first, second = window("a"), window("b", last=6)
    message = multi_stream_message(rows(1, 2, 3), [(first, 1, 10), (second, 2, 20)], MANY)
    assert message is not None
    header, payload = unseal(message)
    assert MultiStreamHeader.model_validate_json(header).frames == (("a", 1, 1), ("b", 7, 2))
    assert decode_message(SCHEMA, payload).equals(rows(1, 2, 3))
    assert first.bytes_in_flight == share(len(message), 1, 3)
    assert second.bytes_in_flight == share(len(message), 2, 3)
    assert (second.rows_added, second.next_sequence, second.first_source_row) == (2, 8, 20)
    assert (first.frames_sent, second.frames_sent) == (1, 1)
    first.ack(1, 10_000)
    assert first.settled
    assert first.bytes_in_flight == 0


def test_a_frame_of_a_multi_stream_message_is_resent_alone_with_its_sequence() -> None:
    first, second = window("a"), window("b")
    for number in (1, 2):
        multi_stream_message(rows(number, 10 + number), [(first, 1, 0), (second, 1, 0)], MANY)
    first.ack(2, 10_000)
    second.resume(1, 10_000)
    sequence, message, frame = next_message(second)
    header, payload = unseal(message)
    assert json.loads(header) == {"stream": "b", "sequence": 2}
    assert sequence == 2
    assert decode_message(SCHEMA, payload).equals(rows(12))
    assert len(message) <= second.bytes_in_flight == frame.size
    assert second.rows_acked == 1


def test_frames_of_multi_stream_messages_after_a_dropped_frame_are_renumbered() -> None:
    one, other = window("a"), window("b")
    for number in (1, 2, 3):
        multi_stream_message(rows(number, number), [(one, 1, number), (other, 1, 0)], MANY)
    assert one.take_back(2, 2) is not None
    one.replace_next(None)
    sequence, message, _ = next_message(one)
    assert sequence == 2
    assert decode_message(SCHEMA, unseal(message)[1]).equals(rows(3))
    assert (one.rows_rejected, one.next_sequence) == (1, 3)


@pytest.mark.parametrize(("credit", "max_bytes"), [(300, MANY), (10_000, 300)], ids=["credit", "size"])
def test_rows_that_may_not_share_a_message_are_not_in_flight(credit: int, max_bytes: int) -> None:
    first, second = window("a"), window("b", credit)
    assert multi_stream_message(rows(1, 2), [(first, 1, 0), (second, 1, 0)], MANY) is not None
    before = (second.bytes_in_flight, second.next_sequence)
    assert multi_stream_message(rows(*range(11)), [(first, 1, 0), (second, 10, 0)], max_bytes) is None
    assert (second.bytes_in_flight, second.next_sequence, first.next_sequence) == (*before, 2)
