"""Trials: a query on the last rows of its streams, without registering it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import pytest

from mavstream import Client, Forbidden, Invalid, ProblemError, stream
from mavstream.testing import start_server

WARM = stream("readings").where("celsius > 20")
TOKENS = "admin:topsecret,client:lesssecret,feeder:feedsecret"


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with start_server(tokens=TOKENS) as url, Client(url, token="topsecret", timeout=90.0) as made:
        made.create_stream(
            name="readings",
            fields=[{"name": "at", "type": "timestamp"}, {"name": "celsius", "type": "int"}],
            event_time="at",
        )
        made.append("readings", [{"at": n * 100_000, "celsius": n} for n in range(100)])
        yield made


def test_a_trial_answers_on_the_last_rows_and_registers_nothing(client: Client) -> None:
    found = client.try_query(WARM, rows=30, limit=5)
    assert (found.results, found.read, found.complete) == (30, {"readings": 30}, True)
    assert [row["celsius"] for row in found.rows] == [70, 71, 72, 73, 74]
    assert client.queries() == []


def test_a_trial_takes_sql_and_closes_only_the_windows_that_the_watermark_has_passed(client: Client) -> None:
    sql = """SELECT window_end, count(*) AS n FROM TUMBLE(TABLE readings, DESCRIPTOR(at), INTERVAL '1' SECOND)
             GROUP BY window_start, window_end"""
    found = client.try_query({"sql": sql}, rows=100)
    assert [row["n"] for row in found.rows] == [10] * 9
    assert found.rows[0]["window_end"] == "1970-01-01T00:00:01.000000Z"


def test_bad_queries_are_refused_with_what_is_wrong(client: Client) -> None:
    with pytest.raises(Invalid, match="celsuis"):
        client.try_query({"sql": "SELECT celsuis FROM readings"})
    with pytest.raises(ProblemError, match="either 'plan' or 'sql'"):
        client.try_query({"plan": WARM.build().model_dump(mode="json"), "sql": "SELECT 1"} | {})
    with pytest.raises(Invalid, match="rows"):
        client.try_query(WARM, rows=0)


def test_a_failing_query_says_why(client: Client) -> None:
    overflowing = stream("readings").window("1s").agg(n="sum(celsius + 9223372036854775000)")
    with pytest.raises(ProblemError) as caught:
        client.try_query(overflowing)
    assert caught.value.code == "trial_failed"


def test_a_feeder_may_not_try_queries(client: Client) -> None:
    with Client(client.url, token="feedsecret") as feeder, pytest.raises(Forbidden):
        feeder.try_query(WARM)


def test_a_trial_ends_although_its_stream_goes_on(client: Client) -> None:
    ended = threading.Event()

    def feed() -> None:
        with Client(client.url, token="topsecret") as own:
            for number in itertools.count(100):
                if ended.is_set():
                    return
                own.append("readings", [{"at": number * 100_000, "celsius": number}])

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        found = client.try_query(WARM, rows=50)
    finally:
        ended.set()
        thread.join()
    assert found.complete
    assert found.read["readings"] >= 50
