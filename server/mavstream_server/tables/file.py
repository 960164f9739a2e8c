"""The file of a version: its columns as mapped arrays.

Strings are codes into the texts in the same file. A file gets the name of a version only when it is complete.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_server.columns.column import DTYPES, Array, Column
from mavstream_server.tables.errors import TableFilesError
from mavstream_server.tables.mapped import MappedArrays, write_arrays
from mavstream_server.tables.texts import MappedTexts

_MAGIC = b"MvTable\n"


def write_version(file: Path, columns: Mapping[str, Column], schema: Schema, rows: int, sync: bool) -> str:
    """Write a file and return the digest of its rows and fields."""
    arrays: list[Array] = []
    array_indexes = {field.name: _append_arrays(columns[field.name], arrays) for field in schema}
    digest = hashlib.sha256(orjson.dumps([rows, fields_json(schema), array_indexes]))
    for array in arrays:
        digest.update(array.data)
    header = {
        "rows": rows,
        "digest": digest.hexdigest(),
        "fields": fields_json(schema),
        "columns": array_indexes,
    }
    write_arrays(file, _MAGIC, header, arrays, sync)
    return digest.hexdigest()


def fields_json(schema: Schema) -> list[dict[str, Any]]:
    """Return the fields of a schema in the JSON form that files store."""
    return [{"name": f.name, "type": f.type.value, "nullable": f.nullable} for f in schema]


def schema_of(fields: list[dict[str, Any]]) -> Schema:
    """Return the schema of fields in the form of `fields_json`."""
    return Schema(tuple(Field(one["name"], FieldType(one["type"]), one["nullable"]) for one in fields))


def _append_arrays(column: Column, arrays: list[Array]) -> dict[str, int]:
    """Append the arrays of a column and return their indexes by role."""
    valid, values = column.valid, column.values
    if valid is not None:  # values of null rows are undefined and must not change the digest
        values = np.where(valid, values, values.dtype.type(0))
    parts = {"values": values}
    if valid is not None:
        parts["valid"] = valid
    if column.dictionary is not None:
        texts = [text.encode() for text in column.dictionary.values]
        parts["text"] = np.frombuffer(b"".join(texts), dtype=np.uint8)
        parts["ends"] = np.cumsum([len(text) for text in texts], dtype=np.int64)
    first = len(arrays)
    arrays += [np.ascontiguousarray(array) for array in parts.values()]
    return {name: first + number for number, name in enumerate(parts)}


class VersionFile:
    """The memory-mapped file of a version."""

    def __init__(self, file: Path, *, verify: bool = True) -> None:
        """Raises TableFilesError if the file is missing, damaged or not a version; `verify` reads it all."""
        self._arrays = MappedArrays(file, _MAGIC, "a version of a table", verify=verify)
        self.nbytes = self._arrays.nbytes
        header = self._arrays.header
        try:
            self.rows: int = header["rows"]
            self.digest: str = header["digest"]
            self.schema = schema_of(header["fields"])
            self._columns: dict[str, dict[str, int]] = header["columns"]
        except (ValueError, TypeError, KeyError) as error:
            raise TableFilesError(file, f"the header is damaged ({error}); put the table again") from None

    def type(self, name: str) -> FieldType:
        """Return the type of a column."""
        field = self.schema.get(name)
        assert field is not None
        return field.type

    def column(self, name: str) -> Column:
        """Return a column; for strings, all texts are loaded into memory."""
        column = self.bare_column(name)
        if self.type(name) is FieldType.STRING:
            return Column(column.values, column.valid, self.texts(name).dictionary())
        return column

    def bare_column(self, name: str) -> Column:
        """Return a mapped column; for strings, it has codes and no dictionary."""
        parts = self._columns[name]
        values = self._arrays.array(parts["values"], DTYPES[self.type(name)])
        valid = self._arrays.array(parts["valid"], np.dtype(np.bool_)) if "valid" in parts else None
        return Column(values, valid)

    def texts(self, name: str) -> MappedTexts:
        """Return the texts of a string column, by code."""
        parts = self._columns[name]
        text = self._arrays.array(parts["text"], np.dtype(np.uint8))
        return MappedTexts(text, self._arrays.array(parts["ends"], np.dtype(np.int64)))
