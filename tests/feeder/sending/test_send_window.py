"""Frames and lanes: what is sent, how far credit goes, and what is sent again."""

from __future__ import annotations

import pytest
from tests.support.reading_files import READINGS, ROWS

from mavstream_feeder import (
    FeedLost,
)
from mavstream_feeder.sending.frames import Frame, make_frame
from mavstream_feeder.sending.lane import Lane
from mavstream_protocol.tuples import decode_columns, decode_message, decode_rows
from mavstream_protocol.wire.envelope import unseal
from mavstream_protocol.wire.feed import DataHeader, Format, from_producer


@pytest.mark.parametrize("form", list(Format))
def test_a_frame_says_what_the_protocol_says(form: Format) -> None:
    schema = READINGS.schema()
    batch = decode_rows(schema, ROWS)
    frame = make_frame("readings", 7, batch, form)
    assert frame.rows == 3
    if isinstance(frame.message, bytes):
        header, payload = unseal(frame.message)
        assert DataHeader.model_validate_json(header) == DataHeader(stream="readings", sequence=7)
        assert decode_message(schema, payload).equals(batch)
        assert frame.size == len(frame.message)
    else:
        data = from_producer.validate_json(frame.message)
        assert data.type == "data"
        assert (data.stream, data.sequence) == ("readings", 7)
        decode, part = (decode_rows, data.rows) if form is Format.ROWS else (decode_columns, data.columns)
        assert decode(schema, part).equals(batch)


def frame(sequence: int, size: int = 100) -> Frame:
    return Frame("readings", sequence, 10, b"", size)


def lane_with(frames: int, credit: int = 1000, last: int = 0) -> Lane:
    lane = Lane("readings", most_frames=5)
    lane.welcomed(last, credit)
    for number in range(frames):
        lane.made(frame(last + 1 + number))
    return lane


def sent(lane: Lane) -> list[int]:
    numbers = []
    while (each := lane.next_frame()) is not None:
        numbers.append(each.sequence)
    return numbers


def test_a_lane_sends_as_far_as_its_credit_goes() -> None:
    lane = lane_with(5, credit=250)
    assert sent(lane) == [1, 2]
    assert not lane.open
    lane.acked(1, 250)
    assert sent(lane) == [3]
    lane.acked(3, 1000)
    assert sent(lane) == [4, 5]
    lane.acked(5, 1000)
    assert lane.settled
    assert lane.open
    assert (lane.rows_sent, lane.rows_acked) == (50, 50)


def test_a_lane_waits_for_acks_when_many_frames_are_under_way() -> None:
    lane = lane_with(5)
    sent(lane)
    assert not lane.open
    lane.acked(1, 1000)
    assert lane.open


def test_a_frame_larger_than_all_credit_travels_alone() -> None:
    lane = lane_with(2, credit=60)
    assert sent(lane) == [1]
    lane.acked(1, 60)
    assert sent(lane) == [2]


def test_a_lane_goes_on_behind_what_the_server_has() -> None:
    lane = lane_with(2, last=41)
    assert sent(lane) == [42, 43]
    assert lane.next_sequence == 44


def test_after_a_reconnect_only_what_the_server_misses_is_sent_again() -> None:
    lane = lane_with(4)
    sent(lane)
    lane.acked(1, 1000)
    lane.made(frame(5))
    lane.welcomed(2, 1000)
    assert lane.rows_acked == 20
    assert sent(lane) == [3, 4, 5]
    lane.acked(5, 1000)
    assert lane.settled
    assert lane.rows_acked == 50


def test_a_server_that_forgot_or_knows_too_much_ends_the_feed() -> None:
    lane = lane_with(3)
    sent(lane)
    lane.acked(3, 1000)
    with pytest.raises(FeedLost, match="acked frame 3 and now has only 1"):
        lane.welcomed(1, 1000)
    with pytest.raises(FeedLost, match="another feeder uses the same name"):
        lane.welcomed(9, 1000)


def test_what_was_refused_for_now_is_tried_one_by_one_until_credit_returns() -> None:
    lane = lane_with(4)
    sent(lane)
    lane.acked(1, 1000)
    lane.again_from(2)
    assert sent(lane) == []
    assert lane.try_again()
    assert sent(lane) == [2]
    lane.acked(2, 1000)
    assert not lane.try_again()
    assert sent(lane) == [3, 4]
