from __future__ import annotations

import pyarrow as pa
import pytest

from mavstream_protocol import Field, FieldType, InvalidTuples, Schema
from mavstream_protocol.tuples import (
    arrow_schema,
    decode_batch,
    decode_message,
    decode_schema,
    decode_stream,
    encode_message,
    encode_schema,
    encode_stream,
)
from mavstream_protocol.tuples.arrow import MOST_ROWS

NOON = 1_767_268_800_000_000


def one(kind: FieldType, nullable: bool = False) -> Schema:
    return Schema((Field("x", kind, nullable),))


def decoded(kind: FieldType, array: pa.Array, nullable: bool = False) -> pa.Array:
    return decode_batch(one(kind, nullable), pa.record_batch([array], names=["x"])).column("x")


def items(kind: FieldType, array: pa.Array, nullable: bool = False) -> list[tuple[str, str, str]]:
    with pytest.raises(InvalidTuples) as caught:
        decoded(kind, array, nullable)
    return [(item.pointer, item.code, item.detail) for item in caught.value.items]


def stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


TYPES = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
UTC = pa.timestamp("us", "UTC")
STREAM = r"^body: tuples cannot be read as an Arrow IPC stream: "


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_integers_of_all_widths_are_ints_and_floats(kind: pa.DataType) -> None:
    array = pa.array([0, 1, 127], kind)
    assert decoded(FieldType.INT, array) == pa.array([0, 1, 127], pa.int64())
    assert decoded(FieldType.FLOAT, array) == pa.array([0, 1, 127], pa.float64())


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["a", "ü"]),
        pa.array(["a", "ü"], pa.large_string()),
        pa.array(["a", "ü"], pa.string_view()),
        pa.array(["a", "ü"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["a", "ü"], pa.large_string())),
    ],
    ids=lambda array: str(array.type),
)
def test_strings_of_all_kinds_are_strings(array: pa.Array) -> None:
    assert decoded(FieldType.STRING, array) == pa.array(["a", "ü"])
    assert decode_stream(one(FieldType.STRING), stream(pa.record_batch([array], names=["x"]))).column(
        "x"
    ) == pa.array(["a", "ü"])


@pytest.mark.parametrize(
    "array",
    [
        pa.array([NOON // 10**6], pa.timestamp("s")),
        pa.array([NOON // 1000], pa.timestamp("ms", "Europe/Paris")),
        pa.array([NOON], pa.timestamp("us")),
        pa.array([NOON], UTC),
        pa.array([NOON * 1000], pa.timestamp("ns", "UTC")),
        pa.array([NOON], pa.int64()),
        pa.array(["2026-01-01T12:00:00Z"]),
    ],
    ids=lambda array: str(array.type),
)
def test_timestamps_of_all_units_and_zones_are_the_same_instant(array: pa.Array) -> None:
    assert decoded(FieldType.TIMESTAMP, array) == pa.array([NOON], UTC)


def test_small_floats_are_floats() -> None:
    assert decoded(FieldType.FLOAT, pa.array([1.5], pa.float32())).to_pylist() == [1.5]
    assert decoded(FieldType.FLOAT, pa.array([1.5], pa.float16())).to_pylist() == [1.5]


def test_an_untyped_column_of_nulls_fits_a_nullable_field() -> None:
    for kind in FieldType:
        assert decoded(kind, pa.nulls(2), nullable=True).to_pylist() == [None, None]


def test_nulls_and_slices_are_kept() -> None:
    array = pa.array([1, None, 3, 4], pa.int32()).slice(1, 2)
    assert decoded(FieldType.INT, array, nullable=True).to_pylist() == [None, 3]
    times = pa.array([None, NOON // 1000, None], pa.timestamp("ms")).slice(1)
    assert decoded(FieldType.TIMESTAMP, times, nullable=True) == pa.array([NOON, None], UTC)


@pytest.mark.parametrize(
    ("kind", "array", "detail"),
    [
        (
            FieldType.INT,
            pa.array([1.0]),
            "field 'x' is of type int and the Arrow column is double: send int64 or another integer type",
        ),
        (
            FieldType.FLOAT,
            pa.array(["1"]),
            "field 'x' is of type float and the Arrow column is string: send float64, float32 or integers",
        ),
        (FieldType.BOOL, pa.array([1]), "field 'x' is of type bool and the Arrow column is int64: send bool"),
        (
            FieldType.STRING,
            pa.array([b"a"]),
            "field 'x' is of type string and the Arrow column is binary: "
            "send string, large_string, string_view or a dictionary of them",
        ),
        (
            FieldType.TIMESTAMP,
            pa.array([[1]]),
            "field 'x' is of type timestamp and the Arrow column is list<item: int64>: "
            "send timestamp, int64 of microseconds or ISO 8601 strings",
        ),
    ],
)
def test_a_column_of_a_wrong_type_is_refused_by_name(kind: FieldType, array: pa.Array, detail: str) -> None:
    assert items(kind, array) == [("columns/x", "type_mismatch", detail)]


@pytest.mark.parametrize(
    ("kind", "array", "row", "code", "detail"),
    [
        (
            FieldType.INT,
            pa.array([1, 2**63], pa.uint64()),
            1,
            "out_of_range",
            "field 'x' expects a 64-bit int, got 9223372036854775808: "
            "it must be between -9223372036854775808 and 9223372036854775807",
        ),
        (
            FieldType.INT,
            pa.array([1, None]),
            1,
            "null_value",
            "field 'x' is not nullable, got null: give it an int",
        ),
        (
            FieldType.FLOAT,
            pa.array([0.0, 1.0, float("nan")]),
            2,
            "not_finite",
            "field 'x' expects a finite float, got nan: leave the row out, or declare the field nullable",
        ),
        (
            FieldType.FLOAT,
            pa.array([2**53 + 1]),
            0,
            "inexact",
            "field 'x' expects a float, got the integer 9007199254740993, which no float holds exactly: "
            "send float64",
        ),
        (
            FieldType.TIMESTAMP,
            pa.array([0, 1500], pa.timestamp("ns")),
            1,
            "invalid_timestamp",
            "field 'x' expects microseconds, got 1500 ns, which is finer: round it first",
        ),
        (
            FieldType.TIMESTAMP,
            pa.array([2**62], pa.timestamp("s")),
            0,
            "invalid_timestamp",
            f"field 'x' expects a timestamp, got {2**62 * 10**6}: instant {2**62 * 10**6} is outside the "
            "years 1 to 9999: give microseconds since 1970 (not nanoseconds) or ISO 8601 text",
        ),
        (
            FieldType.TIMESTAMP,
            pa.array([2**62], UTC),
            0,
            "invalid_timestamp",
            f"field 'x' expects a timestamp, got {2**62}: instant {2**62} is outside the "
            "years 1 to 9999: give microseconds since 1970 (not nanoseconds) or ISO 8601 text",
        ),
    ],
)
def test_a_value_that_cannot_be_converted_exactly_is_refused_by_row(
    kind: FieldType, array: pa.Array, row: int, code: str, detail: str
) -> None:
    assert items(kind, array) == [(f"rows/{row}/x", code, detail)]


def test_large_integers_that_are_exact_floats_are_accepted() -> None:
    assert decoded(FieldType.FLOAT, pa.array([2**60, None]), nullable=True).to_pylist() == [2.0**60, None]


def test_columns_are_found_by_name() -> None:
    schema = Schema((Field("a", FieldType.INT), Field("b", FieldType.INT, nullable=True)))
    with pytest.raises(InvalidTuples) as caught:
        decode_batch(schema, pa.record_batch([pa.array([1])] * 3, names=["c", "b", "b"]))
    assert [(item.pointer, item.detail) for item in caught.value.items] == [
        ("columns/c", "column 'c' is not in the stream: its fields are a, b"),
        ("columns/b", "column 'b' comes 2 times: send it once"),
        ("columns/a", "column 'a' is missing: give it one value per row"),
    ]
    batch = decode_batch(schema, pa.record_batch([pa.array([1])], names=["a"]))
    assert batch.to_pylist() == [{"a": 1, "b": None}]


def test_an_arrow_stream_and_single_messages_decode_to_the_same_rows() -> None:
    schema = one(FieldType.INT)
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2])], schema=arrow_schema(schema))
    assert decode_stream(schema, encode_stream(schema, [batch, batch])).column("x").to_pylist() == [
        1,
        2,
        1,
        2,
    ]
    assert decode_stream(schema, encode_stream(schema, [])).num_rows == 0
    assert decode_message(schema, encode_message(batch)) == batch
    assert decode_schema(encode_schema(schema)) == arrow_schema(schema)


def test_a_producer_may_send_messages_of_its_own_schema() -> None:
    batch = pa.record_batch([pa.array([1, 2], pa.int16())], names=["x"])
    sent = decode_schema(batch.schema.serialize().to_pybytes())
    message = batch.serialize().to_pybytes()
    assert decode_message(one(FieldType.INT), message, sent).column("x").to_pylist() == [1, 2]


def test_a_dictionary_in_a_single_message_is_refused() -> None:
    sent = pa.schema([pa.field("x", pa.dictionary(pa.int32(), pa.string()))])
    with pytest.raises(InvalidTuples, match="column 'x' is dictionary-encoded, which single messages cannot"):
        decode_message(one(FieldType.STRING), b"", sent)


def test_bytes_that_are_not_arrow_are_refused() -> None:
    schema = one(FieldType.STRING)
    for payload in (b"", b"hello", b"\xff\xff\xff\xff\x10\0\0\0", encode_stream(schema, [])[:40]):
        with pytest.raises(InvalidTuples, match=STREAM):
            decode_stream(schema, payload)
        with pytest.raises(
            InvalidTuples, match=r"^body: tuples cannot be read as an Arrow record batch message"
        ):
            decode_message(schema, payload)
        with pytest.raises(InvalidTuples, match=r"^body: tuples cannot be read as an Arrow schema message"):
            decode_schema(payload)


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (b"hello", b"h\xff\xffl\xff"),
        ((5).to_bytes(4, "little") + bytes(4), (1 << 30).to_bytes(4, "little") + bytes(4)),
    ],
    ids=["text that is not UTF-8", "an offset that points outside"],
)
def test_buffers_that_would_be_misread_are_refused(good: bytes, bad: bytes) -> None:
    schema = one(FieldType.STRING)
    batch = pa.RecordBatch.from_arrays([pa.array(["hello"])], schema=arrow_schema(schema))
    payload = encode_stream(schema, [batch])
    head, _, tail = payload.rpartition(good)
    with pytest.raises(InvalidTuples, match=STREAM):
        decode_stream(schema, head + bad + tail)


def test_damage_anywhere_is_refused_or_harmless() -> None:
    schema = Schema((Field("s", FieldType.STRING), Field("n", FieldType.INT, nullable=True)))
    arrays = [pa.array(["a", "bc", "d"]), pa.array([1, None, 3])]
    payload = encode_stream(schema, [pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(schema))])
    for index in range(len(payload)):
        for value in (0, 0x7F, 0xFF):
            try:
                batch = decode_stream(schema, payload[:index] + bytes([value]) + payload[index + 1 :])
            except InvalidTuples:
                continue
            batch.validate(full=True)


def test_a_frame_that_claims_too_many_rows_is_refused() -> None:
    schema = one(FieldType.INT, nullable=True)
    claim = pa.record_batch([pa.nulls(MOST_ROWS + 1)], names=["x"])
    with pytest.raises(InvalidTuples, match=r"^body: the frame has more than 16777216 rows: send several"):
        decode_stream(schema, stream(claim))
