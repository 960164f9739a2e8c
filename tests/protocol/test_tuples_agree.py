from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from mavstream_protocol import (
    FIRST_INSTANT,
    LAST_INSTANT,
    Field,
    FieldType,
    InvalidTuples,
    Schema,
    format_instant,
)
from mavstream_protocol.tuples import (
    arrow_schema,
    decode_batch,
    decode_columns,
    decode_lines,
    decode_message,
    decode_rows,
    decode_stream,
    encode_columns,
    encode_lines,
    encode_message,
    encode_rows,
    encode_stream,
)

derandomized = settings(derandomize=True, deadline=None, max_examples=150)

VALUES: dict[FieldType, st.SearchStrategy[Any]] = {
    FieldType.INT: st.integers(-(2**63), 2**63 - 1),
    FieldType.FLOAT: st.floats(allow_nan=False, allow_infinity=False),
    FieldType.BOOL: st.booleans(),
    FieldType.STRING: st.text(max_size=8),
    FieldType.TIMESTAMP: st.integers(FIRST_INSTANT, LAST_INSTANT),
}
FIELDS = st.builds(Field, st.sampled_from("abcdef"), st.sampled_from(FieldType), st.booleans())
SCHEMAS = st.lists(FIELDS, min_size=1, max_size=5, unique_by=lambda field: field.name).map(
    lambda fields: Schema(tuple(fields))
)


@st.composite
def frames(draw: st.DrawFn) -> tuple[Schema, list[dict[str, Any]]]:
    schema = draw(SCHEMAS)
    row = st.fixed_dictionaries(
        {
            field.name: VALUES[field.type] | st.none() if field.nullable else VALUES[field.type]
            for field in schema
        }
    )
    return schema, draw(st.lists(row, max_size=6))


def as_arrow(schema: Schema, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    shape = arrow_schema(schema)
    return pa.RecordBatch.from_arrays(
        [pa.array([row[field.name] for row in rows], field.type) for field in shape], schema=shape
    )


@derandomized
@given(frames())
def test_all_encodings_decode_to_the_same_rows(frame: tuple[Schema, list[dict[str, Any]]]) -> None:
    schema, rows = frame
    columns = {name: [row[name] for row in rows] for name in schema.names}
    expected = as_arrow(schema, rows)
    expected.validate(full=True)
    for batch in (
        decode_rows(schema, orjson.dumps(rows)),
        decode_rows(schema, rows),
        decode_lines(schema, b"\n".join(map(orjson.dumps, rows))),
        decode_columns(schema, orjson.dumps(columns)),
        decode_columns(schema, columns),
        decode_batch(schema, expected),
    ):
        assert batch.schema == expected.schema
        assert batch.equals(expected)


@derandomized
@given(frames())
def test_encoded_rows_decode_to_the_same(frame: tuple[Schema, list[dict[str, Any]]]) -> None:
    schema, rows = frame
    batch = as_arrow(schema, rows)
    assert decode_rows(schema, encode_rows(batch)).equals(batch)
    assert decode_lines(schema, encode_lines(batch)).equals(batch)
    assert decode_columns(schema, encode_columns(batch)).equals(batch)
    assert decode_stream(schema, encode_stream(schema, [batch])).equals(batch)
    assert decode_message(schema, encode_message(batch)).equals(batch)


@derandomized
@given(st.lists(st.integers(FIRST_INSTANT, LAST_INSTANT), min_size=1, max_size=5), st.data())
def test_text_and_integers_are_the_same_instant(instants: list[int], data: st.DataObject) -> None:
    schema = Schema((Field("at", FieldType.TIMESTAMP),))
    mixed = [data.draw(st.sampled_from([instant, format_instant(instant)])) for instant in instants]
    texts = [format_instant(instant) for instant in instants]
    assert decode_columns(schema, {"at": mixed}).equals(decode_columns(schema, {"at": instants}))
    assert decode_columns(schema, {"at": texts}).equals(decode_columns(schema, {"at": instants}))


JSON = (
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64)
    | st.floats(allow_nan=False)
    | st.text(max_size=4)
)


@derandomized
@given(SCHEMAS, st.data())
def test_rows_and_columns_give_the_same_errors(schema: Schema, data: st.DataObject) -> None:
    row = st.fixed_dictionaries(dict.fromkeys(schema.names, JSON))
    rows = data.draw(st.lists(row, max_size=4))
    columns = {name: [row[name] for row in rows] for name in schema.names}
    assert outcome(lambda: decode_rows(schema, rows)) == outcome(lambda: decode_columns(schema, columns))


def outcome(decode: Any) -> object:
    try:
        return decode()
    except InvalidTuples as refused:
        return refused.items
