from __future__ import annotations

import re
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from mavstream_protocol import (
    Duration,
    Percent,
    PositiveDuration,
    PositiveSize,
    Size,
    format_duration,
    format_percent,
    format_size,
    parse_duration,
    parse_percent,
    parse_size,
)

derandomized = settings(derandomize=True, deadline=None, max_examples=200)


class Limits(BaseModel):
    wait: Duration = 0
    every: PositiveDuration | None = None
    hold: Size = 0
    disk: PositiveSize | None = None
    loss: Percent = 0.05


def refusal(**values: object) -> tuple[str, str]:
    with pytest.raises(ValidationError) as caught:
        Limits.model_validate(values)
    (error,) = caught.value.errors()
    return error["type"], error["msg"]


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("250us", 250),
        ("500ms", 500_000),
        ("2s", 2_000_000),
        ("1.5s", 1_500_000),
        ("1m", 60_000_000),
        ("1min", 60_000_000),
        ("1h", 3_600_000_000),
        ("1d", 86_400_000_000),
        ("0s", 0),
        ("0.001ms", 1),
    ],
)
def test_a_duration_is_read_in_microseconds(text: str, microseconds: int) -> None:
    assert parse_duration(text) == microseconds


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("10B", 10),
        ("512KB", 512_000),
        ("64MB", 64_000_000),
        ("1.5GB", 1_500_000_000),
        ("2TB", 2 * 10**12),
        ("1KiB", 1024),
        ("1.5MiB", 3 * 2**19),
        ("1GiB", 2**30),
    ],
)
def test_a_size_is_read_in_bytes(text: str, count: int) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize(("text", "fraction"), [("5%", 0.05), ("0%", 0.0), ("100%", 1.0), ("0.1%", 0.001)])
def test_a_percentage_is_read_as_a_fraction(text: str, fraction: float) -> None:
    assert parse_percent(text) == fraction


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "duration is empty: write a number and a unit, such as 500ms, 2s or 1h"),
        ("5", "duration '5' has no unit: write a number and a unit, such as 500ms, 2s or 1h"),
        ("-5ms", "duration '-5ms' is negative: write a number and a unit, such as 500ms, 2s or 1h"),
        (
            "5 ms",
            "duration '5 ms' contains white space: "
            "write a number and a unit, such as 500ms, 2s or 1h, without spaces",
        ),
        ("5parsec", "duration '5parsec' has the unknown unit 'parsec': use one of us, ms, s, m, min, h, d"),
        ("0.5us", "duration '0.5us' is finer than one microsecond: use whole microseconds"),
        (
            "1.000000000000000000000000000000001s",
            "duration '1.000000000000000000000000000000001s' is finer than one microsecond: "
            "use whole microseconds",
        ),
        (
            "999999999d",
            "duration '999999999d' is too large: at most 9223372036854775807 microseconds fit",
        ),
        ("soon", "duration 'soon' cannot be read: write a number and a unit, such as 500ms, 2s or 1h"),
        (
            "1" * 50 + "s",
            f"duration '{'1' * 40}...' cannot be read: write a number and a unit, such as 500ms, 2s or 1h",
        ),
    ],
)
def test_a_wrong_duration_is_explained(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("values", "code", "message"),
    [
        (
            {"wait": 5},
            "duration",
            "duration 5 is a bare number: write text with a unit, such as 500ms, 2s or 1h",
        ),
        (
            {"wait": True},
            "duration",
            "duration must be text such as 500ms, 2s or 1h, got a value of type bool",
        ),
        ({"every": "0s"}, "duration_zero", "duration must be above zero: write for example 500ms, 2s or 1h"),
        (
            {"hold": 64},
            "size",
            "size 64 is a bare number: write text with a unit, such as 64MB, 1.5GB or 512KiB",
        ),
        (
            {"hold": "64mb"},
            "size",
            "size '64mb' has the unknown unit 'mb': use one of B, KB, MB, GB, TB, KiB, MiB, GiB, TiB",
        ),
        ({"disk": "0B"}, "size_zero", "size must be above zero: write for example 64MB, 1.5GB or 512KiB"),
        ({"hold": "0.5B"}, "size", "size '0.5B' is finer than one byte: use whole bytes"),
        (
            {"loss": "5"},
            "percent",
            "percentage '5' has no percent sign: write 5% as text, or a number 0..1",
        ),
        ({"loss": "-5%"}, "percent", "percentage '-5%' is negative: write 0% to 100%"),
        ({"loss": "101%"}, "percent", "percentage '101%' is above 100%: write 0% to 100%"),
        (
            {"loss": 5},
            "percent",
            "percentage 5 is not between 0 and 1: write a fraction, or text such as 5%",
        ),
        (
            {"loss": float("nan")},
            "percent",
            "percentage nan is not between 0 and 1: write a fraction, or text such as 5%",
        ),
        (
            {"loss": "some%"},
            "percent",
            "percentage 'some%' cannot be read: write a number and a percent sign, such as 5%",
        ),
    ],
)
def test_a_wrong_quantity_in_a_model_is_explained(values: dict[str, object], code: str, message: str) -> None:
    assert refusal(**values) == (code, message)


def test_a_timedelta_is_a_duration() -> None:
    assert Limits.model_validate({"wait": timedelta(milliseconds=3)}).wait == 3000
    assert refusal(wait=timedelta(-1))[1] == (
        "duration datetime.timedelta(days=-1) is negative: give a timedelta of zero or more"
    )


def test_a_model_writes_quantities_with_units_and_reads_them_back() -> None:
    limits = Limits.model_validate(
        {"wait": "1.5s", "every": "1min", "hold": "64MB", "disk": "1GiB", "loss": 0.1}
    )
    written = {"wait": "1500ms", "every": "1m", "hold": "64MB", "disk": "1GiB", "loss": "10%"}
    assert limits.model_dump() == written
    assert Limits.model_validate(written) == limits
    assert Limits.model_validate_json(limits.model_dump_json()) == limits


@derandomized
@given(st.integers(0, 2**63 - 1) | st.integers(0, 10**6).map(lambda n: n * 60_000_000))
def test_a_formatted_quantity_reads_back_the_same(value: int) -> None:
    assert parse_duration(format_duration(value)) == value
    assert parse_size(format_size(value)) == value


@derandomized
@given(st.floats(0, 1))
def test_a_formatted_percentage_reads_back_the_same(fraction: float) -> None:
    assert parse_percent(format_percent(fraction)) == fraction


def test_the_largest_exact_unit_is_used() -> None:
    assert format_duration(500_000) == "500ms"
    assert format_duration(90_000_000) == "90s"
    assert format_duration(0) == "0s"
    assert format_size(1_500_000) == "1500KB"
    assert format_size(0) == "0B"
    assert format_percent(0.05) == "5%"


def test_a_value_that_is_not_a_quantity_cannot_be_formatted() -> None:
    with pytest.raises(
        ValueError, match=r"duration of -1 microseconds cannot be written: it must be 0..2\^63-1"
    ):
        format_duration(-1)


def test_the_json_schema_shows_text_with_a_pattern_and_examples() -> None:
    for kind, unit in ((PositiveDuration, "ms"), (PositiveSize, "MB")):
        shown = TypeAdapter(kind).json_schema()
        assert shown["type"] == "string"
        assert unit in shown["pattern"]
        assert shown["examples"]
