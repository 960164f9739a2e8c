"""Conversations without a server: what they ask for next, given what came of the last step."""

from __future__ import annotations

from typing import Any

import pytest

from mavstream import (
    Conflict,
    ConnectFailed,
    ConnectionLost,
    Invalid,
    InvalidTuples,
    NotFound,
    Retry,
    ServerProblem,
    TooMany,
    TransportError,
)
from mavstream._convert.tuples import Portion, canonical, portions
from mavstream._errors import answer_error, refusal_of
from mavstream._feeding.lane import HEADER_ROOM, Lane
from mavstream._transport.http import exchange, read
from mavstream._transport.steps import Pause, Reply, Request, Talk
from mavstream_protocol import Field, FieldType, Problem, Schema
from mavstream_protocol.tuples import decode_message
from mavstream_protocol.wire.resources import ServerInfo

GET = Request("GET", "/v1/info")
APPEND = Request("POST", "/v1/streams/s/tuples", repeatable=False)
OK = Reply(200, {}, b"{}")
BUSY = Reply(503, {}, b"")
SCHEMA = Schema((Field("id", FieldType.INT), Field("name", FieldType.STRING, nullable=True)))


def play(talk: Talk[Any], *outcomes: Reply | TransportError) -> tuple[Any, list[float]]:
    """Answer the requests of a conversation one by one; return its result and the pauses that it made."""
    left, pauses = list(outcomes), []
    try:
        step = next(talk)
        while True:
            if isinstance(step, Pause):
                pauses.append(step.seconds)
                step = talk.send(None)
                continue
            outcome = left.pop(0)
            step = talk.throw(outcome) if isinstance(outcome, TransportError) else talk.send(outcome)
    except StopIteration as end:
        assert left == []
        return end.value, pauses


def problem(status: int) -> bytes:
    return Problem(title="No", status=status, code="no", detail="because").model_dump_json().encode()


def test_an_answer_needs_no_second_attempt() -> None:
    assert play(exchange(GET, Retry()), OK) == (OK, [])


@pytest.mark.parametrize(
    "failure", [ConnectFailed("gone"), ConnectionLost("broke"), BUSY, Reply(429, {}, b"")]
)
def test_what_may_pass_is_tried_again(failure: Reply | TransportError) -> None:
    reply, pauses = play(exchange(GET, Retry()), failure, OK)
    assert reply == OK
    assert 0.05 <= pauses[0] <= 0.1


def test_pauses_double_up_to_a_limit_and_have_jitter() -> None:
    retry = Retry(first=1, most=5)
    assert [retry.pause(failures, 1.0) for failures in (1, 2, 3, 4, 1000)] == [1, 2, 4, 5, 5]
    assert [retry.pause(failures, 0.0) for failures in (1, 2, 3, 4)] == [0.5, 1, 2, 2.5]


def test_the_last_attempt_tells_what_is_wrong() -> None:
    with pytest.raises(ServerProblem, match="the server answered 503 Service Unavailable"):
        play(exchange(GET, Retry(attempts=2)), BUSY, BUSY)
    with pytest.raises(ConnectionLost):
        play(exchange(GET, Retry(attempts=2)), ConnectionLost("broke"), ConnectionLost("broke"))


def test_a_server_may_ask_for_a_longer_pause() -> None:
    _, pauses = play(exchange(GET, Retry()), Reply(429, {"retry-after": "7"}, b""), OK)
    assert pauses == [7.0]
    with pytest.raises(TooMany):
        play(exchange(GET, Retry()), Reply(429, {"retry-after": "3600"}, b""))


def test_rows_are_not_sent_twice_when_nobody_knows_whether_they_came() -> None:
    with pytest.raises(ConnectionLost):
        play(exchange(APPEND, Retry()), ConnectionLost("broke"))
    with pytest.raises(ServerProblem):
        play(exchange(APPEND, Retry()), BUSY)
    assert play(exchange(APPEND, Retry()), ConnectFailed("no"), Reply(429, {}, b""), OK)[0] == OK


def test_a_deletion_whose_answer_got_lost_was_done() -> None:
    gone = Reply(404, {}, problem(404))
    delete = Request("DELETE", "/v1/streams/s")
    assert play(exchange(delete, Retry()), ConnectionLost("broke"), gone)[0].status == 204
    with pytest.raises(NotFound):
        play(exchange(delete, Retry()), gone)
    with pytest.raises(NotFound):
        play(exchange(delete, Retry()), ConnectFailed("no"), gone)


@pytest.mark.parametrize(
    ("status", "family"),
    [(400, Invalid), (413, Invalid), (422, Invalid), (404, NotFound), (409, Conflict), (412, Conflict)],
)
def test_problems_come_by_family_with_what_the_server_said(status: int, family: type[Exception]) -> None:
    error = answer_error(status, problem(status))
    assert type(error) is family
    assert (error.code, str(error), error.problem.status) == ("no", "because", status)


def test_answers_of_strangers_are_told_too() -> None:
    error = answer_error(502, b"<html>Bad Gateway")
    assert isinstance(error, ServerProblem)
    assert str(error) == "the server answered 502 Bad Gateway: <html>Bad Gateway"
    assert isinstance(answer_error(599, b""), ServerProblem)


def test_an_answer_of_another_shape_is_the_servers_problem() -> None:
    with pytest.raises(ServerProblem, match="name: Field required"):
        read(Reply(200, {}, b"{}"), ServerInfo)


@pytest.mark.parametrize(
    ("code", "family"), [(4401, "NotAuthorised"), (4404, "NotFound"), (4409, "Conflict"), (4429, "TooMany")]
)
def test_close_codes_that_say_no(code: int, family: str) -> None:
    assert type(refusal_of(ConnectionLost("said so", code))).__name__ == family


@pytest.mark.parametrize("code", [None, 1000, 1001, 1006, 1011, 1012])
def test_close_codes_after_which_to_come_back(code: int | None) -> None:
    assert refusal_of(ConnectionLost("said so", code)) is None


def lane_with(*sizes: int, credit: int = 10_000, last: int = 0) -> Lane:
    lane = Lane("s", SCHEMA)
    lane.welcome("p", last, credit)
    lane.frames.extend(Portion(size, bytes(size)) for size in sizes)
    return lane


def sent(lane: Lane) -> list[tuple[int, int]]:
    found = []
    while (due := lane.due()) is not None:
        found.append((due[0], len(due[1])))
    return found


def test_frames_are_numbered_behind_what_the_server_has() -> None:
    assert sent(lane_with(1, 2, 3, last=7)) == [(8, 1), (9, 2), (10, 3)]


def test_no_more_is_under_way_than_the_credit_allows() -> None:
    lane = lane_with(100, 100, 100, credit=2 * (100 + HEADER_ROOM))
    assert sent(lane) == [(1, 100), (2, 100)]
    lane.ack(1, 2 * (100 + HEADER_ROOM))
    assert sent(lane) == [(3, 100)]
    assert not lane.waiting
    assert lane.busy


def test_a_frame_larger_than_the_credit_goes_alone_and_none_goes_without_credit() -> None:
    lane = lane_with(100, 100, credit=10)
    assert sent(lane) == [(1, 100)]
    lane.ack(1, 0)
    assert sent(lane) == []
    lane.ack(1, 1)
    assert sent(lane) == [(2, 100)]


def test_after_a_new_welcome_only_what_is_missing_is_sent_again() -> None:
    lane = lane_with(1, 2, 3, 4)
    sent(lane)
    lane.ack(1, 10_000)
    lane.welcome("p", 2, 10_000)
    assert sent(lane) == [(3, 3), (4, 4)]


def test_a_rejected_frame_leaves_no_hole() -> None:
    lane = lane_with(1, 2, 3)
    sent(lane)
    dropped = lane.reject(2, 2, keep=False)
    assert dropped is not None
    assert dropped.rows == 2
    assert lane.reject(3, 2, keep=False) is None  # it was refused only for its number
    assert sent(lane) == [(2, 3)]
    lane.ack(2, 10_000)
    assert not lane.busy


def test_a_frame_that_was_refused_for_now_is_sent_again() -> None:
    lane = lane_with(1, 2)
    sent(lane)
    lane.reject(1, 1, keep=True)
    assert sent(lane) == [(1, 1), (2, 2)]


def test_a_server_that_counts_less_than_it_acked_is_followed() -> None:
    lane = lane_with(1, 2)
    sent(lane)
    lane.ack(1, 10_000)
    lane.welcome("p", 0, 10_000)
    assert sent(lane) == [(1, 2)]


def test_two_processes_with_one_name_are_told() -> None:
    lane = lane_with(1)
    with pytest.raises(Conflict, match="a producer name of its own"):
        lane.welcome("p", 5, 10_000)


def test_an_end_waits_for_the_acks() -> None:
    lane = lane_with(1)
    lane.ending = True
    sent(lane)
    assert not lane.end_due()
    lane.ack(1, 10_000)
    assert lane.end_due()
    assert not lane.end_due()
    lane.welcome("p", 1, 10_000)
    assert lane.end_due()


ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]


def test_rows_columns_tables_and_frames_mean_the_same() -> None:
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    columns = {"id": [1, 2], "name": ["a", None]}
    expected = canonical(SCHEMA, ROWS)
    assert canonical(SCHEMA, columns).equals(expected)
    assert canonical(SCHEMA, {"id": np.array([1, 2]), "name": ("a", None)}).equals(expected)
    assert canonical(SCHEMA, pa.table(columns)).equals(expected)
    assert canonical(SCHEMA, pa.RecordBatch.from_pydict(columns)).equals(expected)
    assert canonical(SCHEMA, pd.DataFrame(columns, index=[7, 8])).equals(expected)
    assert canonical(SCHEMA, iter(ROWS)).equals(expected)
    assert canonical(SCHEMA, pa.table(columns).slice(0, 0)).num_rows == 0


def test_wrong_rows_are_found_before_they_are_sent() -> None:
    with pytest.raises(InvalidTuples) as caught:
        canonical(SCHEMA, [{"id": 1}, {"id": "two"}])
    assert caught.value.items[0].pointer == "rows/1/id"


def test_large_batches_are_cut_into_messages() -> None:
    batch = canonical(SCHEMA, [{"id": n, "name": "x" * (n % 50)} for n in range(5000)])
    parts = list(portions(batch, 4096))
    assert len(parts) > 10
    assert all(len(part.payload) <= 4096 for part in parts)
    ids = [n for part in parts for n in decode_message(SCHEMA, part.payload).column("id").to_pylist()]
    assert ids == list(range(5000))
    assert sum(part.rows for part in parts) == 5000
    assert [part.rows for part in portions(batch.slice(0, 2), 1)] == [1, 1]
    assert list(portions(batch.slice(0, 0), 4096)) == []
