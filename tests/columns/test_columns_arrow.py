"""Conversion between columns and Arrow record batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mavstream_protocol.errors import InvalidTuples
from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_server.columns.arrow import arrow_from_columns, arrow_schema, columns_from_arrow
from mavstream_server.columns.column import Column

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
VALUES: dict[FieldType, st.SearchStrategy[Any]] = {
    FieldType.INT: INT64,
    FieldType.FLOAT: st.floats(allow_nan=False, allow_infinity=False),
    FieldType.BOOL: st.booleans(),
    FieldType.STRING: st.text(max_size=5),
    FieldType.TIMESTAMP: INT64,
}
SCHEMA = Schema(tuple(Field(type_.value, type_, True) for type_ in FieldType))
ROWS = st.lists(st.tuples(*(st.one_of(st.none(), VALUES[field.type]) for field in SCHEMA)), max_size=20)


def one(type_: FieldType, nullable: bool = False) -> Schema:
    return Schema((Field("x", type_, nullable),))


def batch(array: Any) -> Any:
    return pa.record_batch([array], names=["x"])


@given(ROWS, st.integers(0, 5))
def test_rows_go_to_arrow_and_back(rows: list[tuple[Any, ...]], start: int) -> None:
    columns = {
        field.name: Column.from_list(field.type, [row[index] for row in rows])
        for index, field in enumerate(SCHEMA)
    }
    record_batch = arrow_from_columns(columns, SCHEMA)
    record_batch.validate(full=True)
    assert record_batch.schema == arrow_schema(SCHEMA)
    for cut, expected in ((record_batch, rows), (record_batch.slice(start), rows[start:])):
        back = columns_from_arrow(cut, SCHEMA)
        assert list(zip(*(back[f.name].to_list(f.type) for f in SCHEMA), strict=True)) == expected


def test_numbers_and_codes_are_not_copied() -> None:
    for array, type_ in (
        (pa.array([1, None, 3]), FieldType.INT),
        (pa.array([1.5, 2.5]), FieldType.FLOAT),
        (pa.array([1, 2], pa.timestamp("us", "UTC")), FieldType.TIMESTAMP),
    ):
        column = columns_from_arrow(batch(array), one(type_, True))["x"]
        assert column.values.__array_interface__["data"][0] == array.buffers()[1].address
    values = np.arange(5)
    array = arrow_from_columns({"x": Column(values)}, one(FieldType.INT)).column(0)
    assert array.buffers()[1].address == values.__array_interface__["data"][0]


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["b", None, "a", "b"]),
        pa.array(["b", None, "a", "b"], pa.large_string()),
        pa.array(["b", None, "a", "b"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 2], pa.int8()), pa.array(["b", "a", "b"])),
        pa.DictionaryArray.from_arrays(pa.array([2, 1, 0, 2], pa.int32()), pa.array(["a", None, "b"])),
    ],
)
def test_strings_are_read_from_many_encodings(array: Any) -> None:
    column = columns_from_arrow(batch(array), one(FieldType.STRING, True))["x"]
    assert column.to_list(FieldType.STRING) == ["b", None, "a", "b"]
    assert column.dictionary is not None
    assert sorted(column.dictionary.values) == ["a", "b"]


@pytest.mark.parametrize(
    ("array", "type_", "expected"),
    [
        (pa.array([1, 2], pa.int16()), FieldType.INT, [1, 2]),
        (pa.array([1.5], pa.float32()), FieldType.FLOAT, [1.5]),
        (pa.array([3], pa.timestamp("ms")), FieldType.TIMESTAMP, [3000]),
        (pa.array([3], pa.timestamp("s", "Europe/Paris")), FieldType.TIMESTAMP, [3_000_000]),
    ],
)
def test_types_are_widened_where_nothing_is_lost(array: Any, type_: FieldType, expected: list[Any]) -> None:
    assert columns_from_arrow(batch(array), one(type_))["x"].to_list(type_) == expected


@pytest.mark.parametrize(
    ("array", "type_", "code", "match"),
    [
        (pa.array([1.0]), FieldType.INT, "type_mismatch", "expected Arrow int64, got double"),
        (pa.array([1]), FieldType.STRING, "type_mismatch", "is string"),
        (pa.array([1]).dictionary_encode(), FieldType.STRING, "type_mismatch", "is string"),
        (pa.array([1, None]), FieldType.INT, "null_value", "null at row 1"),
        (pa.array([1 << 63], pa.uint64()), FieldType.INT, "out_of_range", "cannot be converted to int"),
        (pa.array([1], pa.timestamp("ns")), FieldType.TIMESTAMP, "out_of_range", "would lose data"),
        (
            pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["a", None])),
            FieldType.STRING,
            "null_value",
            "null at row 1",
        ),
        (
            pa.DictionaryArray.from_arrays(pa.array([0, 7], pa.int32()), pa.array(["a"]), safe=False),
            FieldType.STRING,
            "bad_code",
            "beyond its dictionary",
        ),
    ],
)
def test_incompatible_columns_are_refused_by_field(
    array: Any, type_: FieldType, code: str, match: str
) -> None:
    with pytest.raises(InvalidTuples, match=match) as caught:
        columns_from_arrow(batch(array), one(type_))
    assert [(item.pointer, item.code) for item in caught.value.items] == [("columns/x", code)]


def test_missing_and_unknown_fields_are_all_named() -> None:
    with pytest.raises(InvalidTuples) as caught:
        columns_from_arrow(
            pa.record_batch([pa.array([1])] * 3, names=["y", "y", "z"]),
            Schema((Field("x", FieldType.INT), Field("y", FieldType.INT))),
        )
    assert [(item.pointer, item.code) for item in caught.value.items] == [
        ("columns/z", "unknown_field"),
        ("columns/x", "missing_field"),
        ("columns/y", "missing_field"),
    ]
