"""Encodings of tuples (JSON rows, JSON columns, Arrow), all with the same meaning."""

from mavstream_protocol.tuples.arrow import (
    decode_batch,
    decode_message,
    decode_schema,
    decode_stream,
    encode_message,
    encode_schema,
    encode_stream,
    read_known,
    read_message,
)
from mavstream_protocol.tuples.canonical import arrow_schema
from mavstream_protocol.tuples.json_columns import columns_of, decode_columns, encode_columns
from mavstream_protocol.tuples.json_rows import decode_lines, decode_rows, encode_lines, encode_rows, rows_of

__all__ = [
    "arrow_schema",
    "columns_of",
    "decode_batch",
    "decode_columns",
    "decode_lines",
    "decode_message",
    "decode_rows",
    "decode_schema",
    "decode_stream",
    "encode_columns",
    "encode_lines",
    "encode_message",
    "encode_rows",
    "encode_schema",
    "encode_stream",
    "read_known",
    "read_message",
    "rows_of",
]
