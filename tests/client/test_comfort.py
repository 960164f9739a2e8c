"""Conveniences of the SDK: streams like data frames, names that others use, plans and tables to look at."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pandas as pd
import pyarrow as pa
import pytest

from mavstream import AsyncClient, Client, Flow, InvalidObject, join, stream
from mavstream._convert.streams import stream_request
from mavstream._results.html import table_html
from mavstream._transport.address import Address

ROWS = [
    {"at": datetime(2026, 1, 1, tzinfo=UTC), "room": "hall", "temp": 20.5},
    {"at": datetime(2026, 1, 2, tzinfo=UTC), "room": None, "temp": 21.0},
]
FIELDS = [("at", "timestamp", False), ("room", "string", True), ("temp", "float", False)]


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        pd.DataFrame(ROWS),
        pa.Table.from_pylist(ROWS),
        pa.RecordBatch.from_pylist(ROWS),
        {key: [row[key] for row in ROWS] for key in ROWS[0]},
    ],
    ids=["rows", "pandas", "table", "batch", "columns"],
)
def test_a_stream_gets_the_fields_of_rows(rows: object) -> None:
    made = stream_request("readings", {"like": rows})
    assert made["name"] == "readings"
    assert [(one["name"], one["type"], one["nullable"]) for one in made["fields"]] == FIELDS
    assert made["event_time"] == "at"


def test_fields_and_durations_are_given_as_text_or_objects() -> None:
    made = stream_request(
        "readings", {"fields": "at:timestamp, temp:float?", "lateness": timedelta(seconds=2)}
    )
    assert made["fields"][1] == {"name": "temp", "type": "float", "nullable": True}
    assert made["lateness"] == "2s"
    with pytest.raises(InvalidObject, match="'temp:real' is not NAME:TYPE"):
        stream_request("readings", {"fields": "temp:real"})
    with pytest.raises(InvalidObject, match="column 'x' is of type list"):
        stream_request("readings", {"like": [{"x": [1]}]})


def test_filter_and_groupby_are_where_and_by() -> None:
    ours = stream("readings").where("temp > 30").window("10s").by("room").agg(n="count(*)")
    theirs = stream("readings").filter("temp > 30").groupby("room").window("10s").agg(n="count(*)")
    assert (
        ours
        == theirs
        == stream("readings").filter("temp > 30").window("10s").groupby("room").agg(n="count(*)")
    )
    readings = stream("readings")
    grouped = readings.groupby("room")
    assert grouped.session("5s").agg(n="count(*)") == readings.session("5s").by("room").agg(n="count(*)")
    assert grouped.rows_window(5).agg(n="count(*)") == readings.rows_window(5).by("room").agg(n="count(*)")


def test_a_plan_is_shown_as_a_tree() -> None:
    hot = stream("readings").where("temp > 30").named("hot")
    flow = join(hot, hot.where("room = 'hall'"), "room", within="5s")
    lines = flow.explain().splitlines()
    assert lines[0].startswith("join: join on [[room, room]]")
    assert lines[1:3] == ["  hot: select where temp > 30", "    readings: source stream readings"]
    assert lines[3].startswith("  select: select where room = 'hall'")
    assert lines[4] == "    hot: select where temp > 30 (as above)"
    assert repr(flow) == flow.explain()
    assert "temp &gt; 30" in flow._repr_html_()


def test_a_flow_that_is_no_plan_still_has_a_repr() -> None:
    broken = stream("readings").where("1 +").named("no name")
    assert repr(broken).startswith(("Flow(", "no name"))
    assert isinstance(broken, Flow)


def test_tables_for_notebooks_escape_what_they_show() -> None:
    assert table_html(["a<b"], [[None], ["<i>"]]) == (
        "<table><thead><tr><th>a&lt;b</th></tr></thead><tbody><tr><td></td></tr><tr><td>&lt;i&gt;</td></tr></tbody></table>"
    )


def test_the_environment_names_the_server_and_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAVSTREAM_URL", raising=False)
    monkeypatch.delenv("MAVSTREAM_TOKEN", raising=False)
    assert Client().url == "http://127.0.0.1:8000"
    monkeypatch.setenv("MAVSTREAM_URL", "https://streams.example.org")
    monkeypatch.setenv("MAVSTREAM_TOKEN", "secret")
    assert repr(Client()) == "Client('https://streams.example.org')"
    assert repr(AsyncClient()) == "AsyncClient('https://streams.example.org')"

    def token(url: str | None, given: str | None = None) -> str | None:
        return Address.chosen(url, given, 1.0).token

    assert (token(None), token("https://streams.example.org")) == ("secret", "secret")
    assert token(None, "other") == "other"
    # It is not sent to another server.
    assert token("http://127.0.0.1:8000") is None


def test_rows_have_datetimes_on_request() -> None:
    from mavstream._results.subscription import Subscription
    from mavstream._transport.retry import DEFAULT_RETRY
    from mavstream_protocol.wire.results import OnLag

    for datetimes, value in ((True, ROWS[0]["at"]), (False, "2026-01-01T00:00:00.000000Z")):
        found = Subscription("q", None, "warn", OnLag.GAP, 1.0, DEFAULT_RETRY, datetimes=datetimes)
        found._batch = pa.RecordBatch.from_pylist(ROWS, pa.schema([("at", pa.timestamp("us", "UTC"))]))
        found._next = 2
        row = found.pop_row()
        assert row is not None
        assert row["at"] == value
