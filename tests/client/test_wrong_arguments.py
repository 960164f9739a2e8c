"""Arguments of the SDK that cannot be sent: the error names the part, and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mavstream import Client, InvalidObject, stream
from mavstream.testing import start_server

NOWHERE = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda client: client.create_stream("s", fields=[{"name": "x", "type": float}]),
            "fields/0/type: .* got the Python type float: write its name as text, 'float'",
        ),
        (
            lambda client: client.create_stream("s", fields={"x": "float"}),
            r"fields: expected a list such as .* or text such as 'x:float', got a dict",
        ),
        (
            lambda client: client.submit(stream("readings").select(lambda row: row.x > 3)),
            "where: .* got a Python function: write it as text, such as 'temperature > 30'",
        ),
        (
            lambda client: client.submit(sql="select * from readings", qos={"latency": object()}),
            "qos/latency: .* got a value of type object",
        ),
        (
            lambda client: client.submit("SELECT * FROM readings"),
            "expected the path of a file, got an SQL query: give it as sql=",
        ),
        (
            lambda client: client.submit(3),
            "expected a specification, a dict or the path of a file, got .* int",
        ),
        (lambda client: client.put_table("t", [{"a": lambda: 1}]), "rows/0/a: .* got a Python function"),
    ],
)
def test_an_argument_that_cannot_be_sent_is_named(call: Callable[[Any], object], said: str) -> None:
    with Client(NOWHERE) as client, pytest.raises(InvalidObject, match=said):
        call(client)


def test_rows_and_producers_are_checked_before_they_are_sent() -> None:
    with start_server() as url, Client(url) as client:
        client.create_stream("readings", fields="x:float")
        with pytest.raises(InvalidObject, match=r"rows: expected rows as a list of dicts, .* NoneType"):
            client.append("readings", None)
        with pytest.raises(
            InvalidObject, match=r"producer: name 'meter-7' is not an identifier: .*'meter_7'"
        ):
            client.feed(producer="meter-7")
