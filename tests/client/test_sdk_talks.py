"""Conversations without a server: the next request, given the result of the last step."""

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
from mavstream._convert.tuples import canonical
from mavstream._errors import answer_error, refusal_of
from mavstream._transport.http import exchange, read
from mavstream._transport.steps import Pause, Reply, Request, Talk
from mavstream_protocol import Field, FieldType, Problem, Schema
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
def test_transient_errors_are_retried(failure: Reply | TransportError) -> None:
    reply, pauses = play(exchange(GET, Retry()), failure, OK)
    assert reply == OK
    assert 0.05 <= pauses[0] <= 0.1


def test_pauses_double_up_to_a_limit_and_have_jitter() -> None:
    retry = Retry(first=1, most=5)
    assert [retry.pause(failures, 1.0) for failures in (1, 2, 3, 4, 1000)] == [1, 2, 4, 5, 5]
    assert [retry.pause(failures, 0.0) for failures in (1, 2, 3, 4)] == [0.5, 1, 2, 2.5]


def test_the_last_attempt_raises_the_error() -> None:
    with pytest.raises(ServerProblem, match="the server answered 503 Service Unavailable"):
        play(exchange(GET, Retry(attempts=2)), BUSY, BUSY)
    with pytest.raises(ConnectionLost):
        play(exchange(GET, Retry(attempts=2)), ConnectionLost("broke"), ConnectionLost("broke"))


def test_a_server_may_ask_for_a_longer_pause() -> None:
    _, pauses = play(exchange(GET, Retry()), Reply(429, {"retry-after": "7"}, b""), OK)
    assert pauses == [7.0]
    with pytest.raises(TooMany):
        play(exchange(GET, Retry()), Reply(429, {"retry-after": "3600"}, b""))


def test_rows_are_not_sent_again_when_their_outcome_is_unknown() -> None:
    with pytest.raises(ConnectionLost):
        play(exchange(APPEND, Retry()), ConnectionLost("broke"))
    with pytest.raises(ServerProblem):
        play(exchange(APPEND, Retry()), BUSY)
    assert play(exchange(APPEND, Retry()), ConnectFailed("no"), Reply(429, {}, b""), OK)[0] == OK


def test_a_deletion_whose_answer_was_lost_counts_as_done() -> None:
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
def test_problems_become_errors_by_family_with_the_message_of_the_server(
    status: int, family: type[Exception]
) -> None:
    error = answer_error(status, problem(status))
    assert type(error) is family
    assert (error.code, str(error), error.problem.status) == ("no", "because", status)


def test_answers_that_are_not_problems_are_reported() -> None:
    error = answer_error(502, b"<html>Bad Gateway")
    assert isinstance(error, ServerProblem)
    assert str(error) == "the server answered 502 Bad Gateway: <html>Bad Gateway"
    assert isinstance(answer_error(599, b""), ServerProblem)


def test_an_answer_of_an_unexpected_shape_is_a_server_error() -> None:
    with pytest.raises(ServerProblem, match="name: Field required"):
        read(Reply(200, {}, b"{}"), ServerInfo)


@pytest.mark.parametrize(
    ("code", "family"), [(4401, "NotAuthorised"), (4404, "NotFound"), (4409, "Conflict"), (4429, "TooMany")]
)
def test_permanent_close_codes_raise_an_error(code: int, family: str) -> None:
    assert type(refusal_of(ConnectionLost("said so", code))).__name__ == family


@pytest.mark.parametrize("code", [None, 1000, 1001, 1006, 1011, 1012])
def test_transient_close_codes_lead_to_a_reconnect(code: int | None) -> None:
    assert refusal_of(ConnectionLost("said so", code)) is None


ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": None}]


def test_rows_columns_tables_and_data_frames_are_encoded_alike() -> None:
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


def test_wrong_rows_are_refused_before_they_are_sent() -> None:
    with pytest.raises(InvalidTuples) as caught:
        canonical(SCHEMA, [{"id": 1}, {"id": "two"}])
    assert caught.value.items[0].pointer == "rows/1/id"
