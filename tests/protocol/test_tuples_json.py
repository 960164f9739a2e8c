from __future__ import annotations

from datetime import UTC, datetime

import orjson
import pyarrow as pa
import pytest

from mavstream_protocol import Field, FieldType, InvalidTuples, Schema, parse_instant
from mavstream_protocol.tuples import (
    arrow_schema,
    columns_of,
    decode_columns,
    decode_lines,
    decode_rows,
    encode_columns,
    encode_lines,
    encode_rows,
    rows_of,
)
from mavstream_protocol.tuples.instant_columns import parse_instants

SCHEMA = Schema(
    (
        Field("at", FieldType.TIMESTAMP),
        Field("home", FieldType.STRING),
        Field("n", FieldType.INT),
        Field("temperature", FieldType.FLOAT, nullable=True),
        Field("open", FieldType.BOOL, nullable=True),
    )
)
NOON = 1_767_268_800_000_000
TEXT = "2026-01-01T12:00:00.000000Z"
GOOD = {"at": NOON, "home": "h1", "n": 1, "temperature": 20.5, "open": True}


def row(**changes: object) -> dict[str, object]:
    return {**GOOD, **changes}


def items(schema: Schema, rows: object) -> list[tuple[str, str, str]]:
    with pytest.raises(InvalidTuples) as caught:
        decode_rows(schema, rows if isinstance(rows, bytes | list) else orjson.dumps(rows))
    return [(item.pointer, item.code, item.detail) for item in caught.value.items]


def column_items(columns: object) -> list[tuple[str, str, str]]:
    with pytest.raises(InvalidTuples) as caught:
        decode_columns(SCHEMA, columns if isinstance(columns, bytes) else orjson.dumps(columns))
    return [(item.pointer, item.code, item.detail) for item in caught.value.items]


def test_rows_become_a_canonical_batch() -> None:
    batch = decode_rows(SCHEMA, orjson.dumps([GOOD, row(at=TEXT, temperature=None, open=None)]))
    assert batch.schema == arrow_schema(SCHEMA)
    assert batch.schema.field("at") == pa.field("at", pa.timestamp("us", "UTC"), nullable=False)
    assert rows_of(batch) == [row(at=TEXT), row(at=TEXT, temperature=None, open=None)]


def test_parsed_rows_may_hold_datetimes() -> None:
    batch = decode_rows(SCHEMA, [row(at=datetime(2026, 1, 1, 12, tzinfo=UTC))])
    assert rows_of(batch)[0]["at"] == TEXT


def test_a_nullable_field_may_be_left_out() -> None:
    short = {name: GOOD[name] for name in ("at", "home", "n")}
    assert rows_of(decode_rows(SCHEMA, [GOOD, short]))[1]["temperature"] is None
    columns = {name: [GOOD[name]] for name in ("at", "home", "n")}
    assert decode_columns(SCHEMA, columns) == decode_rows(SCHEMA, [short])


def test_the_order_of_fields_does_not_matter() -> None:
    assert decode_rows(SCHEMA, [dict(reversed(GOOD.items()))]) == decode_rows(SCHEMA, [GOOD])


def test_the_last_of_equal_keys_counts() -> None:
    assert rows_of(decode_rows(Schema((Field("n", FieldType.INT),)), b'[{"n": 1, "n": 2}]')) == [{"n": 2}]


def test_empty_frames_are_allowed() -> None:
    empty = decode_rows(SCHEMA, b"[]")
    assert empty.num_rows == 0
    assert empty == decode_columns(SCHEMA, orjson.dumps({name: [] for name in GOOD}))
    assert empty == decode_lines(SCHEMA, b"\n")
    assert (encode_rows(empty), encode_lines(empty)) == (b"[]", b"")


def test_whole_numbers_are_floats_rounded_like_any_decimal_text() -> None:
    schema = Schema((Field("x", FieldType.FLOAT),))
    batch = decode_rows(schema, b'[{"x": 1}, {"x": 9007199254740993}, {"x": 100000000000000000000000}]')
    assert batch.column("x").to_pylist() == [1.0, 9007199254740992.0, 1e23]


@pytest.mark.parametrize(
    ("changes", "code", "detail"),
    [
        ({"n": None}, "null_value", "field 'n' is not nullable, got null: give it an int"),
        ({"n": "1"}, "type_mismatch", "field 'n' expects an int, got \"1\""),
        ({"n": True}, "type_mismatch", "field 'n' expects an int, got true"),
        (
            {"n": 1.0},
            "type_mismatch",
            "field 'n' expects an int, got 1.0: write 1, without a decimal point",
        ),
        ({"n": 1.5}, "type_mismatch", "field 'n' expects an int, got 1.5: round it first"),
        (
            {"n": 2**63},
            "out_of_range",
            "field 'n' expects a 64-bit int, got 9223372036854775808: "
            "it must be between -9223372036854775808 and 9223372036854775807",
        ),
        ({"temperature": "warm"}, "type_mismatch", "field 'temperature' expects a float, got \"warm\""),
        ({"temperature": False}, "type_mismatch", "field 'temperature' expects a float, got false"),
        ({"open": 1}, "type_mismatch", "field 'open' expects true or false, got 1"),
        ({"home": 7}, "type_mismatch", "field 'home' expects a string, got 7"),
        (
            {"home": {"a": ["long"] * 20}},
            "type_mismatch",
            'field \'home\' expects a string, got {"a":["long","long","long","long","long"...',
        ),
        (
            {"at": 1.5},
            "type_mismatch",
            "field 'at' expects a timestamp, got 1.5: "
            "write ISO 8601 text or an integer of microseconds since 1970",
        ),
        (
            {"at": "noon"},
            "invalid_timestamp",
            "field 'at' expects a timestamp, got \"noon\": "
            "instant 'noon' is not ISO 8601 text: write it as 2026-01-01T12:00:00Z",
        ),
        (
            {"at": NOON * 1000},
            "invalid_timestamp",
            f"field 'at' expects a timestamp, got {NOON * 1000}: instant {NOON * 1000} is outside the "
            "years 1 to 9999: give microseconds since 1970 (not nanoseconds) or ISO 8601 text",
        ),
        (
            {"colour": 1},
            "unknown_field",
            'field "colour" is not in the stream: its fields are at, home, n, temperature, open',
        ),
    ],
)
def test_a_wrong_value_is_found_and_explained(changes: dict[str, object], code: str, detail: str) -> None:
    rows = [GOOD] * 17 + [row(**changes)]
    (name,) = changes
    assert items(SCHEMA, rows) == [(f"rows/17/{name}", code, detail)]
    if name in GOOD:
        columns = {key: [one[key] for one in rows] for key in GOOD}
        assert column_items(columns) == [(f"rows/17/{name}", code, detail)]


@pytest.mark.parametrize(
    ("literal", "shown"),
    [
        (b"18446744073709551615", "18446744073709551615"),
        (b"18446744073709551616", "1.8446744073709552e+19"),
        (b"-9223372036854775809", "-9.223372036854776e+18"),
        (b"9223372036854775808.0", "9.223372036854776e+18"),
    ],
)
def test_ints_beyond_64_bits_are_out_of_range_however_json_reads_them(literal: bytes, shown: str) -> None:
    schema = Schema((Field("n", FieldType.INT),))
    ((pointer, code, detail),) = items(schema, b'[{"n": ' + literal + b"}]")
    assert (pointer, code) == ("rows/0/n", "out_of_range")
    assert f"got {shown}" in detail


def test_the_limits_of_64_bits_are_kept_exactly() -> None:
    schema = Schema((Field("n", FieldType.INT),))
    limits = [-(2**63), 2**63 - 1]
    assert decode_rows(schema, orjson.dumps([{"n": n} for n in limits])).column("n").to_pylist() == limits


def test_parsed_values_that_json_does_not_have_are_refused() -> None:
    assert items(SCHEMA, [row(temperature=float("nan"))]) == [
        (
            "rows/0/temperature",
            "not_finite",
            "field 'temperature' expects a finite float, got nan: give null instead",
        )
    ]
    assert items(SCHEMA, [row(home="a\ud800")]) == [
        (
            "rows/0/home",
            "invalid_text",
            "field 'home' expects text, got 'a\\ud800', which has half a surrogate pair at character 1: "
            "send whole characters",
        )
    ]
    assert items(SCHEMA, [row(n=10**50)])[0][1] == "out_of_range"
    assert items(SCHEMA, [row(temperature=10**400)])[0][1] == "not_finite"


def test_a_missing_field_is_reported_together_with_an_unknown_one() -> None:
    misspelt = {"hmoe" if name == "home" else name: value for name, value in GOOD.items()}
    assert items(SCHEMA, [misspelt]) == [
        (
            "rows/0/hmoe",
            "unknown_field",
            'field "hmoe" is not in the stream: its fields are at, home, n, temperature, open',
        ),
        ("rows/0/home", "missing_field", "field 'home' is missing: give it a string"),
    ]


def test_the_first_ten_errors_are_reported_in_row_order() -> None:
    rows = [row(n="x", home=1) if number % 2 else GOOD for number in range(40)]
    assert [pointer for pointer, _, _ in items(SCHEMA, rows)] == [
        f"rows/{number}/{name}" for number in (1, 3, 5, 7, 9) for name in ("home", "n")
    ]


@pytest.mark.parametrize(
    ("payload", "code", "detail"),
    [
        (b'{"a": 1}', "not_rows", 'tuples must be a list of objects such as [{"a": 1}], got {"a":1}'),
        (b"[{]", "invalid_json", "tuples cannot be read as JSON: "),
        (b'[{"home": "\xff"}]', "invalid_json", "tuples cannot be read as JSON: str is not valid UTF-8"),
        (b'[{"home": "\\ud800"}]', "invalid_json", "tuples cannot be read as JSON: "),
        (b'[{"temperature": NaN}]', "invalid_json", "tuples cannot be read as JSON: "),
        (b'[{"temperature": 1e400}]', "invalid_json", "tuples cannot be read as JSON: number is infinity"),
        (b"", "invalid_json", "tuples cannot be read as JSON: "),
    ],
)
def test_a_body_that_is_not_a_list_of_rows_is_refused_as_a_whole(
    payload: bytes, code: str, detail: str
) -> None:
    ((pointer, found, message),) = items(SCHEMA, payload)
    assert (pointer, found) == ("body", code)
    assert message.startswith(detail)


def test_a_row_that_is_not_an_object_is_named() -> None:
    assert items(SCHEMA, [GOOD, [1]]) == [("rows/1", "not_an_object", "row 1 must be an object, got [1]")]


def test_json_lines_hold_one_row_each() -> None:
    batch = decode_rows(SCHEMA, [GOOD, row(n=2)])
    lines = encode_lines(batch)
    assert lines.count(b"\n") == 2
    assert decode_lines(SCHEMA, lines) == batch
    assert decode_lines(SCHEMA, lines.replace(b"\n", b"\r\n\r\n")) == batch
    with pytest.raises(InvalidTuples, match=r"^rows/1: row 1 cannot be read as JSON: "):
        decode_lines(SCHEMA, lines.replace(b"}\n{", b"}\n"))


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (
            {"at": [NOON], "home": ["a", "b"], "n": [1]},
            (
                "columns/home",
                "uneven_columns",
                "column 'home' has 2 values and column 'at' has 1: all columns must be equally long",
            ),
        ),
        (
            {"at": [NOON], "home": ["a"]},
            ("columns/n", "missing_field", "column 'n' is missing: give it one value per row"),
        ),
        (
            {"at": [NOON], "home": ["a"], "n": 1},
            ("columns/n", "not_a_list", "column 'n' must be a list, got 1"),
        ),
        (
            {"at": [NOON], "home": ["a"], "n": [1], "m": [1]},
            (
                "columns/m",
                "unknown_field",
                'column "m" is not in the stream: its fields are at, home, n, temperature, open',
            ),
        ),
        (
            [1],
            ("body", "not_columns", 'tuples must be an object of lists such as {"a": [1]}, got [1]'),
        ),
    ],
)
def test_the_shape_of_columns_is_checked(columns: object, expected: tuple[str, str, str]) -> None:
    assert column_items(columns) == [expected]


def test_answers_give_timestamps_as_text_and_nulls_as_null() -> None:
    batch = decode_rows(SCHEMA, [GOOD, row(temperature=None, open=None, n=-(2**63))])
    assert orjson.loads(encode_rows(batch)) == [
        row(at=TEXT),
        row(at=TEXT, temperature=None, open=None, n=-(2**63)),
    ]
    assert orjson.loads(encode_columns(batch)) == columns_of(batch)
    assert columns_of(batch)["at"] == [TEXT, TEXT]


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01T12:00:00",
        "2026-01-01 12:00:00Z",
        "2026-02-28T23:59:59.123+05:30",
        "2024-02-29T00:00:00.123456-23:59",
        "0001-01-01T00:00:00.000000Z",
        "9999-12-31T23:59:59.999999",
    ],
)
def test_the_fast_timestamp_parser_agrees_with_the_slow_one(text: str) -> None:
    instants = parse_instants([text, text])
    assert instants is not None
    assert instants.tolist() == [parse_instant(text)] * 2


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-29T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:00:60Z",
        "2026-01-01T00:00:00z",
        "2026-01-01x00:00:00Z",
        "2026-01-01T00:00:00+24:00",
        "2026-01-01T00:00:00+02:60",
        "2026-01-01T00:00:00*02:00",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "-026-01-01T00:00:00Z",
        " 026-01-01T00:00:00Z",
        "2026-01-01T00:00:0 ",
        "2026-01-01T00:00:00.12 Z",
        "2026-01-01T00:00:00.12Z000",
        "\uff12026-01-01T00:00:00Z",
        "",
    ],
)
def test_the_fast_timestamp_parser_leaves_unusual_texts_to_the_slow_one(text: str) -> None:
    assert parse_instants(["2026-01-01T00:00:00Z"[: len(text)].ljust(len(text), "0"), text]) is None
    assert parse_instants([text]) is None
