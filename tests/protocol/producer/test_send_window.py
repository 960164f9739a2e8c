"""The send window: sequences of frames, credit, and which frames are sent again."""

from __future__ import annotations

import pytest

from mavstream_protocol.producer import Frame, Resumed, SendWindow

CREDIT = 1000


def frame(rows: int, size: int = 100, source_row: int = 0) -> Frame:
    return Frame(rows, size, b"rows", source_row=source_row)


def window_with(*frames: Frame, credit: int = CREDIT, last: int = 0) -> SendWindow:
    window = SendWindow("readings", max_in_flight=5)
    assert window.resume(last, credit) is Resumed.CONTINUED
    for each in frames:
        window.add(each)
    return window


def sent(window: SendWindow) -> list[tuple[int, int]]:
    """Return sequence and rows of the frames that are sent now."""
    found = []
    while (due := window.next_frame()) is not None:
        found.append((due[0], due[1].rows))
    return found


def test_sequences_continue_after_the_last_one_of_the_server() -> None:
    window = window_with(frame(1), frame(2), frame(3), last=7)
    assert sent(window) == [(8, 1), (9, 2), (10, 3)]
    assert window.next_sequence == 11


def test_no_more_is_in_flight_than_credit_allows() -> None:
    window = window_with(*(frame(rows) for rows in range(1, 6)), credit=250)
    assert sent(window) == [(1, 1), (2, 2)]
    assert window.starved
    assert not window.open
    window.ack(1, 250)
    assert sent(window) == [(3, 3)]
    window.ack(3, CREDIT)
    assert sent(window) == [(4, 4), (5, 5)]
    window.ack(5, CREDIT)
    assert window.settled
    assert window.open
    assert (window.rows_added, window.rows_acked, window.frames_sent) == (15, 15, 5)


def test_a_frame_larger_than_all_credit_is_sent_alone_and_none_without_credit() -> None:
    window = window_with(frame(1), frame(2), credit=60)
    assert sent(window) == [(1, 1)]
    window.ack(1, 0)
    assert sent(window) == []
    window.ack(1, 1)
    assert sent(window) == [(2, 2)]


def test_no_frame_is_to_be_added_while_many_are_in_flight() -> None:
    window = window_with(*[frame(1)] * 5)
    sent(window)
    assert not window.open
    assert not window.starved
    window.ack(1, CREDIT)
    assert window.open


def test_after_a_reconnect_only_frames_that_the_server_lacks_are_sent_again() -> None:
    window = window_with(*(frame(rows) for rows in range(1, 5)))
    sent(window)
    window.ack(1, CREDIT)
    window.add(frame(5))
    assert window.resume(2, CREDIT) is Resumed.CONTINUED
    assert window.rows_acked == 3
    assert sent(window) == [(3, 3), (4, 4), (5, 5)]
    window.ack(5, CREDIT)
    assert window.settled
    assert (window.rows_acked, window.frames_sent) == (15, 7)


def test_an_ack_may_cover_frames_that_are_not_in_flight() -> None:
    """The server has appended a frame whose ack was lost with the previous connection."""
    window = window_with(frame(1), frame(2), frame(3))
    sent(window)
    window.resume(0, 100)
    assert sent(window) == [(1, 1)]
    window.ack(2, 100)
    assert (window.frames_in_flight, window.bytes_in_flight) == (0, 0)
    assert sent(window) == [(3, 3)]


def test_a_server_that_lost_frames_or_has_unknown_ones_is_detected() -> None:
    window = window_with(frame(1), frame(2), frame(3))
    sent(window)
    window.ack(2, CREDIT)
    assert window.resume(1, CREDIT) is Resumed.FRAMES_LOST
    assert window.acked == 2
    assert window.resume(4, CREDIT) is Resumed.FRAMES_UNKNOWN
    window.restart(1, CREDIT)
    assert sent(window) == [(2, 3)]


def test_a_dropped_frame_leaves_no_gap() -> None:
    window = window_with(frame(1), frame(2), frame(3))
    sent(window)
    refused = window.take_back(2, 2)
    assert refused is not None
    assert refused.rows == 2
    window.replace_next(None)
    assert window.take_back(3, 2) is None  # rejected only for its number
    assert sent(window) == [(2, 3)]
    window.ack(2, CREDIT)
    assert not window.busy
    assert (window.rows_acked, window.rows_rejected, window.next_sequence) == (4, 2, 3)


def test_a_frame_can_be_replaced_by_one_with_fewer_rows() -> None:
    window = window_with(frame(5), frame(2))
    sent(window)
    assert window.take_back(1, 1) is not None
    window.replace_next(frame(4))
    assert sent(window) == [(1, 4), (2, 2)]
    assert window.rows_rejected == 1


def test_bytes_in_flight_are_those_of_the_frames_in_flight() -> None:
    window = window_with(frame(1, 10), frame(2, 20), frame(3, 30))
    sent(window)
    assert window.bytes_in_flight == 60
    window.take_back(3, 3)
    assert window.bytes_in_flight == 30
    window.ack(1, CREDIT)
    assert window.bytes_in_flight == 20
    window.ack(2, CREDIT)
    assert window.bytes_in_flight == 0


def test_a_transient_rejection_holds_all_frames_until_a_probe_is_acked() -> None:
    window = window_with(*(frame(rows) for rows in range(1, 5)))
    sent(window)
    window.ack(1, CREDIT)
    assert window.take_back(2, 2) is not None
    window.hold()
    assert sent(window) == []
    assert window.probe()
    assert sent(window) == [(2, 2)]
    window.ack(2, CREDIT)
    assert not window.probe()
    assert sent(window) == [(3, 3), (4, 4)]


def test_a_rejection_of_a_frame_that_is_not_in_flight_is_an_error() -> None:
    window = window_with(frame(1), frame(2), credit=100)
    sent(window)
    with pytest.raises(ValueError, match="frame 2 of stream 'readings' was rejected and is not in flight"):
        window.take_back(2, 2)


def test_the_end_waits_for_all_acks_and_is_sent_once_per_connection() -> None:
    window = window_with(frame(1))
    window.end()
    sent(window)
    assert not window.end_due()
    window.ack(1, CREDIT)
    assert window.end_due()
    assert not window.end_due()
    assert window.busy
    window.resume(1, CREDIT)
    assert window.end_due()
    window.end_settled(confirmed=True)
    assert window.ended
    window.end()
    assert not window.busy
    window.resume(1, CREDIT)
    assert not window.end_due()


def test_abandoned_rows_are_counted() -> None:
    window = window_with(frame(1), frame(2), credit=100)
    sent(window)
    window.end()
    assert window.abandon() == 3
    assert not window.busy
    assert (window.rows_rejected, window.bytes_in_flight) == (3, 0)


def test_the_first_unacknowledged_row_of_the_source_is_known() -> None:
    window = window_with(frame(2, source_row=10), frame(2, source_row=12))
    sent(window)
    assert window.first_source_row == 10
    window.ack(1, CREDIT)
    assert window.first_source_row == 12
    window.ack(2, CREDIT)
    assert window.first_source_row is None
