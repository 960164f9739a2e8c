from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from mavstream_protocol import (
    FIRST_INSTANT,
    LAST_INSTANT,
    Mode,
    OnError,
    QuerySpec,
    ReadFrom,
    format_instant,
    parse_instant,
    read_instant,
)

PLAN = {"version": 1, "root": "in", "nodes": {"in": {"op": "source", "stream": "readings"}}}
NOON = 1_767_268_800_000_000


def query(**values: Any) -> QuerySpec:
    return QuerySpec.model_validate({"name": "hot", "plan": PLAN, **values})


def test_a_query_needs_only_a_name_and_a_plan() -> None:
    spec = query()
    assert (spec.class_, spec.mode, spec.from_, spec.on_error) == (
        "default",
        Mode.CONTINUOUS,
        ReadFrom.NOW,
        OnError.NULL,
    )
    assert (spec.start_at, spec.stop_at) == (None, None)


def test_a_query_is_written_as_it_was_given() -> None:
    written = {
        "name": "hot",
        "plan": PLAN,
        "class": "alarms",
        "qos": {"latency": {"p95": "50ms", "tolerance": "10%"}},
        "mode": "one_time",
        "start_at": "2026-01-01T12:00:00.000000Z",
        "stop_at": "2026-01-01T13:00:00.000000Z",
        "from": "earliest",
        "on_error": "skip",
    }
    spec = QuerySpec.model_validate(written)
    assert spec.model_dump(mode="json", exclude_unset=True) == written
    assert QuerySpec.model_validate_json(spec.model_dump_json()) == spec


def test_a_query_can_be_built_with_python_names() -> None:
    spec = query(class_="alarms", from_="earliest", start_at=datetime(2026, 1, 1, 12, tzinfo=UTC))
    assert (spec.class_, spec.from_, spec.start_at) == ("alarms", ReadFrom.EARLIEST, NOON)


def test_a_query_stops_after_it_starts() -> None:
    with pytest.raises(ValidationError) as caught:
        query(start_at=NOON, stop_at="2026-01-01T12:00:00Z")
    (error,) = caught.value.errors()
    assert error["loc"] == ("stop_at",)
    assert error["msg"] == (
        "stop_at 2026-01-01T12:00:00.000000Z is not after start_at 2026-01-01T12:00:00.000000Z: "
        "give a later stop_at or leave it out"
    )


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01T12:00:00Z",
        "2026-01-01T12:00:00z",
        "2026-01-01T12:00:00",
        "2026-01-01 12:00",
        "2026-01-01T12Z",
        "2026-01-01T12:00:00.000Z",
        "2026-01-01T12:00:00.000000000Z",
        "2026-01-01T14:00:00+02:00",
        "2026-01-01T14:00+0200",
        "2026-01-01T06:30:00-05:30",
    ],
)
def test_an_instant_can_be_written_in_many_formats(text: str) -> None:
    assert parse_instant(text) == NOON


def test_a_date_alone_is_its_midnight() -> None:
    assert parse_instant("2026-01-01") == NOON - 12 * 3_600_000_000


def test_datetimes_and_integers_are_instants() -> None:
    assert read_instant(NOON) == NOON
    assert read_instant(datetime(2026, 1, 1, 12)) == NOON
    assert read_instant(datetime(2026, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))) == NOON


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("noon", "instant 'noon' is not ISO 8601 text: write it as 2026-01-01T12:00:00Z"),
        (
            "2026-02-30T00:00:00Z",
            "instant '2026-02-30T00:00:00Z' does not exist: day is out of range for month; "
            "write it as 2026-01-01T12:00:00Z",
        ),
        (
            "2026-01-01T00:00:00+02:60",
            "instant '2026-01-01T00:00:00+02:60' does not exist: minute of the offset must be in 0..59; "
            "write it as 2026-01-01T12:00:00Z",
        ),
        (
            "2026-01-01T00:00:00.1234567Z",
            "instant '2026-01-01T00:00:00.1234567Z' is finer than a microsecond: write at most six decimals",
        ),
        (
            NOON * 1000,
            f"instant {NOON * 1000} is outside the years 1 to 9999: "
            "give microseconds since 1970 (not nanoseconds) or ISO 8601 text",
        ),
        (
            "0001-01-01T00:00:00+01:00",
            "instant '0001-01-01T00:00:00+01:00' is outside the years 1 to 9999: "
            "give microseconds since 1970 (not nanoseconds) or ISO 8601 text",
        ),
        (
            1.5,
            "instant must be ISO 8601 text such as 2026-01-01T12:00:00Z or an integer of microseconds "
            "since 1970, got a value of type float",
        ),
    ],
)
def test_a_wrong_instant_is_explained(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read_instant(value)


@settings(derandomize=True, deadline=None)
@given(st.integers(FIRST_INSTANT, LAST_INSTANT))
def test_a_formatted_instant_reads_back_the_same(microseconds: int) -> None:
    assert parse_instant(format_instant(microseconds)) == microseconds


def test_the_json_schema_uses_the_wire_names() -> None:
    properties = QuerySpec.model_json_schema()["properties"]
    assert {"class", "from", "start_at"} <= set(properties)
    assert all(shown.get("description") for shown in properties.values())
