"""Tuples as Arrow: an IPC stream, or single record batch messages of a schema that was sent once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from mavstream_protocol.errors import InvalidTuples
from mavstream_protocol.schema import FieldType, Schema
from mavstream_protocol.tuples.arrow_columns import cast_column
from mavstream_protocol.tuples.arrow_message import columns_of_message
from mavstream_protocol.tuples.canonical import arrow_schema, canonical_batch
from mavstream_protocol.tuples.columns import instants_fit, numbers_of
from mavstream_protocol.tuples.findings import Findings, refuse_body

MOST_ROWS = 1 << 24
"""A few bytes of Arrow can claim any number of null rows, so the number is bounded."""

Buffer: TypeAlias = bytes | bytearray | memoryview


def decode_stream(schema: Schema, payload: Buffer) -> pa.RecordBatch:
    """Return the canonical batch of all batches in an IPC stream. Raises InvalidTuples."""

    def read() -> pa.RecordBatch:
        with pa.ipc.open_stream(pa.py_buffer(payload)) as reader:
            layout = _readable(reader.schema)
            batches = [_checked(batch) for batch in reader]
            if sum(batch.num_rows for batch in batches) > MOST_ROWS:
                raise _too_long()
            # The schema alone is an empty frame.
            return pa.concat_batches(batches) if batches else _no_rows(layout)

    return decode_batch(schema, _guarded("an Arrow IPC stream", read))


def decode_message(schema: Schema, payload: Buffer, sent: pa.Schema | None = None) -> pa.RecordBatch:
    """Return the canonical batch of one record batch message. Raises InvalidTuples.

    Its arguments are those of `read_message`.
    """
    if sent is not None:
        return decode_batch(schema, read_message(schema, payload, sent))
    batch, known = read_known(schema, payload)
    return decode_batch(schema, batch if known is schema else _widened(batch, schema))


def read_known(schema: Schema, payload: Buffer) -> tuple[pa.RecordBatch, Schema]:
    """Return the batch of one record batch message, and the schema that its producer knew.

    That is the given one, or its first fields if the stream has got nullable ones since. The batch is not
    converted. Raises InvalidTuples.
    """
    try:
        return read_message(schema, payload), schema
    except InvalidTuples:
        known = Schema(schema.fields[: columns_of_message(payload)])
        if not known.fields or len(known) == len(schema) or not schema.extends(known):
            raise
    return read_message(known, payload), known


def read_message(schema: Schema, payload: Buffer, sent: pa.Schema | None = None) -> pa.RecordBatch:
    """Return the batch of one record batch message without conversion, for `decode_batch`.

    `sent` is the producer's own schema, from `decode_schema`; without it the message must be of
    `arrow_schema(schema)`. Dictionaries travel in messages of their own, so columns of `sent` have none.
    Raises InvalidTuples.
    """
    layout = arrow_schema(schema) if sent is None else sent
    if sent is not None:
        _refuse_dictionaries(sent)
    return _guarded(
        "an Arrow record batch message",
        lambda: _checked(pa.ipc.read_record_batch(pa.py_buffer(payload), layout)),
    )


def decode_schema(payload: Buffer) -> pa.Schema:
    """Return the schema of a schema message; whether it fits a stream shows with the first batch."""
    return _guarded("an Arrow schema message", lambda: _readable(pa.ipc.read_schema(pa.py_buffer(payload))))


def decode_batch(schema: Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the canonical form of a validated batch: columns found by name and cast.

    Only lossless casts are done. Raises InvalidTuples.
    """
    if _is_canonical(schema, batch):
        return batch
    findings = Findings()
    _check_names(schema, batch.schema, findings)
    findings.raise_if_any()
    arrays = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        column = pa.nulls(batch.num_rows) if index < 0 else batch.column(index)
        arrays.append(cast_column(field, column, findings))
    findings.raise_if_any()
    return canonical_batch(schema, arrays)


def encode_schema(schema: Schema) -> bytes:
    """Return the schema message to send once, before messages of `encode_message`."""
    return _bytes(arrow_schema(schema).serialize())


def encode_message(batch: pa.RecordBatch) -> bytes:
    """Return one record batch message, without the schema."""
    return _bytes(batch.serialize())


def encode_stream(schema: Schema, batches: Iterable[pa.RecordBatch]) -> bytes:
    """Return an IPC stream: the schema, then the batches, which must be canonical."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, arrow_schema(schema)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return _bytes(sink.getvalue())


def _bytes(buffer: pa.Buffer) -> bytes:
    content: bytes = buffer.to_pybytes()
    return content


def _guarded(what: str, read: Callable[[], pa.RecordBatch]) -> pa.RecordBatch:
    try:
        return read()
    except InvalidTuples:
        raise
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise refuse_body("invalid_arrow", f"tuples cannot be read as {what}: {reason}") from None


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch.num_rows > MOST_ROWS:
        raise _too_long()
    # Offsets and lengths come from the client; without this check a wrong one reads memory outside the
    # buffer.
    batch.validate(full=True)
    return batch


def _readable(schema: pa.Schema) -> pa.Schema:
    # Names and types are decoded lazily; this forces decoding so that an invalid byte raises here.
    for field in schema:
        f"{field.name} {field.type}".encode()
    return schema


def _refuse_dictionaries(sent: pa.Schema) -> None:
    for field in sent:
        if pa.types.is_dictionary(field.type):
            raise refuse_body(
                "dictionary_in_message",
                f"column '{field.name}' is dictionary-encoded, which single messages cannot carry: "
                "send plain strings, or an IPC stream",
            )


def _is_canonical(schema: Schema, batch: pa.RecordBatch) -> bool:
    """Whether a batch is already canonical: small frames then take a third of the time of casting."""
    if not batch.schema.equals(arrow_schema(schema)):
        return False
    for field, column in zip(schema, batch.columns, strict=True):
        if column.null_count and not field.nullable:
            return False
        if field.type is FieldType.FLOAT and not np.isfinite(numbers_of(column)).all():
            return False
        if field.type is FieldType.TIMESTAMP and not instants_fit(column.view(pa.int64())):
            return False
    return True


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _widened(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Return the batch of a producer that did not know the last fields, with nulls there."""
    full = arrow_schema(schema)
    nulls = [pa.nulls(batch.num_rows, field.type) for field in list(full)[batch.num_columns :]]
    return pa.RecordBatch.from_arrays([*batch.columns, *nulls], schema=full)


def _too_long() -> InvalidTuples:
    return refuse_body("too_many_rows", f"the frame has more than {MOST_ROWS} rows: send several frames")


def _check_names(schema: Schema, got: pa.Schema, findings: Findings) -> None:
    names = got.names
    for name in dict.fromkeys(names):
        if name not in schema:
            findings.in_column(
                name[:64],
                "unknown_field",
                f"column '{name[:64]}' is not in the stream: its fields are {', '.join(schema.names)}",
            )
        elif names.count(name) > 1:
            findings.in_column(
                name, "duplicate_column", f"column '{name}' comes {names.count(name)} times: send it once"
            )
    for field in schema:
        if field.name not in names and not field.nullable:
            findings.in_column(
                field.name, "missing_field", f"column '{field.name}' is missing: give it one value per row"
            )
