"""Tables from files, rows, columns, Arrow or data frames, as the body of a request."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import orjson
import pyarrow as pa
from pydantic import ValidationError

from mavstream._convert.json_body import json_body
from mavstream._convert.tuples import Tuples, listed, without_index
from mavstream_protocol import FieldSpec, InvalidObject, ProblemItem
from mavstream_protocol.model_errors import quoted, sentence
from mavstream_protocol.table_rows.media import ENDINGS
from mavstream_protocol.tables import TableFields, read_fields, write_fields

TableLike: TypeAlias = str | os.PathLike[str] | Tuples
"""The path of a file, or rows in any form that streams accept."""
FieldsLike: TypeAlias = str | Sequence[FieldSpec | Mapping[str, Any]]
"""`"room:string,threshold:float?"`, or fields as a stream has them."""


class TableBody(NamedTuple):
    """The body of a request, and its content type."""

    media_type: str
    content: bytes


def table_body(data: TableLike) -> TableBody:
    """Return the body of a request; raises InvalidObject for a file of unknown type or unreadable."""
    if isinstance(data, str | os.PathLike):
        return _file_body(Path(data))
    if isinstance(data, pa.RecordBatch):
        return _arrow_body(pa.Table.from_batches([data]))
    if isinstance(data, Mapping):
        columns = {name: listed(values) for name, values in data.items()}
        return _json_body({"columns": columns})
    if hasattr(data, "__arrow_c_stream__"):
        return _arrow_body(without_index(data))
    return _json_body({"rows": [dict(row) if isinstance(row, Mapping) else row for row in data]})


def fields_text(fields: FieldsLike | None) -> str | None:
    """Return fields as text, for a request; raises InvalidObject."""
    if fields is None:
        return None
    try:
        if isinstance(fields, str):
            return write_fields(read_fields(fields).fields)
        return write_fields(TableFields.model_validate({"fields": list(fields)}).fields)
    except ValidationError as error:
        items = [
            _wrong("/".join(map(str, one["loc"])), sentence(one, quoted(one, "the table")))
            for one in error.errors()
        ]
        raise InvalidObject(items) from None
    except ValueError as error:
        raise InvalidObject([_wrong("fields", str(error))]) from None


def _file_body(path: Path) -> TableBody:
    media_type = ENDINGS.get(path.suffix.lower())
    if media_type is None:
        reason = f"expected a file that ends in {', '.join(ENDINGS)}, got '{path.suffix}'"
        raise _unreadable(path, reason)
    try:
        return TableBody(media_type, path.read_bytes())
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from None


def _arrow_body(table: pa.Table) -> TableBody:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return TableBody(ENDINGS[".arrows"], sink.getvalue().to_pybytes())


def _json_body(data: Mapping[str, Iterable[Any] | Mapping[str, Any]]) -> TableBody:
    return TableBody(ENDINGS[".json"], json_body(data, option=orjson.OPT_SERIALIZE_NUMPY))


def _unreadable(path: Path, reason: str) -> InvalidObject:
    detail = f"'{path}' cannot be read: {reason}"
    return InvalidObject([ProblemItem(pointer="file", code="unreadable_file", detail=detail)])


def _wrong(pointer: str, detail: str) -> ProblemItem:
    return ProblemItem(pointer=pointer, code="invalid_value", detail=detail)
