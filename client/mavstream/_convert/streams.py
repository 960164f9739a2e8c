"""Requests for streams: from specifications, files, keyword arguments, or rows that the stream is to have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

import pyarrow as pa

from mavstream._convert.documents import StreamLike, stream_document
from mavstream._convert.tuples import Tuples, listed, without_index
from mavstream_protocol import FieldSpec, FieldType, InvalidObject, ProblemItem
from mavstream_protocol.names import NAME_PATTERN
from mavstream_protocol.quantities import format_duration
from mavstream_protocol.tables import read_fields
from mavstream_protocol.tuples.arrow_types import field_type_of

FieldsOfStream: TypeAlias = str | Sequence[FieldSpec | Mapping[str, Any]]
"""`"at:timestamp,temperature:float?"`, or a mapping or `FieldSpec` for each field."""
DurationLike: TypeAlias = str | timedelta
"""`"2s"`, or a timedelta."""


class StreamOptions(TypedDict, total=False):
    """What `create_stream` takes besides a specification."""

    name: str | None
    fields: FieldsOfStream | None
    event_time: str | None
    lateness: DurationLike | None
    max_ahead: DurationLike | None
    idle_timeout: DurationLike | None
    retention: DurationLike | Mapping[str, Any] | None
    quota: str | None
    like: Tuples


def stream_request(spec: StreamLike | None, given: StreamOptions) -> dict[str, Any]:
    """Return the request for a stream; raises InvalidObject.

    A text that is a name, and no file, is the name of the stream; it gets the fields of the rows in `like`.
    """
    options: dict[str, Any] = {
        name: format_duration(value // timedelta(microseconds=1)) if isinstance(value, timedelta) else value
        for name, value in given.items()
        if value is not None
    }
    if isinstance(spec, str) and re.match(NAME_PATTERN, spec) and not Path(spec).is_file():
        options["name"], spec = spec, None
    if (fields := options.get("fields")) is not None:
        options["fields"] = _fields(fields)
    if (rows := options.pop("like", None)) is not None:
        found = _fields_of(rows)
        options.setdefault("fields", [one.model_dump(mode="json") for one in found])
        times = [one.name for one in found if one.type is FieldType.TIMESTAMP and not one.nullable]
        if spec is None and len(times) == 1:
            options.setdefault("event_time", times[0])
    return stream_document(spec, options)


def _fields(fields: FieldsOfStream) -> list[Any]:
    if isinstance(fields, Mapping):
        detail = (
            "expected a list such as [{'name': 'x', 'type': 'float'}], or text such as 'x:float', got a dict"
        )
        raise InvalidObject([_wrong("fields", detail)])
    if not isinstance(fields, str):
        return [one.model_dump(mode="json") if isinstance(one, FieldSpec) else one for one in fields]
    try:
        return [one.model_dump(mode="json") for one in read_fields(fields).fields]
    except ValueError as error:
        raise InvalidObject([_wrong("fields", str(error))]) from None


def _fields_of(rows: Tuples) -> list[FieldSpec]:
    """Return the fields of rows; those with nulls may be null."""
    if isinstance(rows, pa.RecordBatch):
        table = pa.Table.from_batches([rows])
    elif isinstance(rows, Mapping):
        table = pa.table({name: listed(values) for name, values in rows.items()})
    elif hasattr(rows, "__arrow_c_stream__"):
        table = without_index(rows)
    else:
        table = pa.Table.from_pylist([dict(row) for row in rows])
    fields, wrong = [], []
    for name, column in zip(table.column_names, table.columns, strict=True):
        type_ = field_type_of(column.type)
        if type_ is None:
            detail = f"column '{name}' is of type {column.type}, which no field can hold: convert it"
            wrong.append(_wrong(f"like/{name}", detail))
        else:
            fields.append(FieldSpec(name=name, type=type_, nullable=column.null_count > 0))
    if wrong:
        raise InvalidObject(wrong)
    return fields


def _wrong(pointer: str, detail: str) -> ProblemItem:
    return ProblemItem(pointer=pointer, code="invalid_value", detail=detail)
