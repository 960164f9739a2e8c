"""The file of a version: a JSON header, and plain columns behind it that are mapped, not read.

Strings are codes into texts that stand in the file. Whoever makes a file gives it its name when it is whole,
so a file with the name of a version is one.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_server.columns.column import DTYPES, Array, Column
from mavstream_server.columns.dictionary import Dictionary
from mavstream_server.tables.problems import TableFilesError

_PREFIX = struct.Struct("<8sII")  # magic, version of the format, bytes of the header
_MAGIC, _FORMAT = b"MvTable\n", 1
_ALIGN = 64
_MOST_HEADER = 1 << 20


def write_version(file: Path, columns: Mapping[str, Column], schema: Schema, rows: int, sync: bool) -> str:
    """Write a file and return the digest of what is in it: equal rows of equal fields have equal ones."""
    arrays: list[Array] = []
    places = {field.name: _place(columns[field.name], arrays) for field in schema}
    digest = hashlib.sha256(orjson.dumps([rows, fields_json(schema), places]))
    for array in arrays:
        digest.update(array.data)
    header = {
        "rows": rows,
        "digest": digest.hexdigest(),
        "fields": fields_json(schema),
        "columns": places,
        "lengths": [array.nbytes for array in arrays],
    }
    text = orjson.dumps(header)
    text += b" " * (-(_PREFIX.size + len(text)) % _ALIGN)
    with file.open("wb") as stream:
        stream.write(_PREFIX.pack(_MAGIC, _FORMAT, len(text)) + text)
        for array in arrays:
            stream.write(array.data)
            stream.write(bytes(-array.nbytes % _ALIGN))
        stream.flush()
        if sync:
            os.fsync(stream.fileno())
    return digest.hexdigest()


def fields_json(schema: Schema) -> list[dict[str, Any]]:
    """Return the fields of a schema as JSON keeps them."""
    return [{"name": f.name, "type": f.type.value, "nullable": f.nullable} for f in schema]


def schema_of(fields: list[dict[str, Any]]) -> Schema:
    """Return the schema that `fields_json` wrote."""
    return Schema(tuple(Field(one["name"], FieldType(one["type"]), one["nullable"]) for one in fields))


def _place(column: Column, arrays: list[Array]) -> dict[str, int]:
    """Add the arrays of a column and return their numbers."""
    valid, values = column.valid, column.values
    if valid is not None:  # what stands under a null is of no meaning, and must not make files differ
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
    """A version's file, mapped: pages are read when a column is used, and shared with everybody."""

    def __init__(self, file: Path) -> None:
        """Raises TableFilesError for a file that is gone, or none of ours."""
        self._file = file
        try:
            with file.open("rb") as stream:
                self.nbytes = os.fstat(stream.fileno()).st_size
                self._map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise TableFilesError(file, f"cannot be read ({error}); put the table again") from None
        header = self._header()
        self.rows: int = header["rows"]
        self.digest: str = header["digest"]
        self.schema = schema_of(header["fields"])
        self._columns: dict[str, dict[str, int]] = header["columns"]
        padded = [length + -length % _ALIGN for length in header["lengths"]]
        self._starts = [self._data + sum(padded[:number]) for number in range(len(padded))]
        self._lengths: list[int] = header["lengths"]
        if self._data + sum(padded) != self.nbytes:
            raise TableFilesError(
                file, f"has {self.nbytes} bytes, expected {self._data + sum(padded)}; put the table again"
            )

    def _header(self) -> dict[str, Any]:
        if self.nbytes < _PREFIX.size or self._map[:8] != _MAGIC:
            raise TableFilesError(self._file, "not a version of a table; move the file away")
        _, version, length = _PREFIX.unpack_from(self._map)
        self._data = _PREFIX.size + length
        if version != _FORMAT or length > min(_MOST_HEADER, self.nbytes):
            raise TableFilesError(
                self._file, f"has format {version}, expected {_FORMAT}; use the release that wrote it"
            )
        header: dict[str, Any] = orjson.loads(self._map[_PREFIX.size : self._data])
        return header

    def column(self, name: str) -> Column:
        """Return a column; its arrays keep the file mapped, even when it is removed."""
        parts, field = self._columns[name], self.schema.get(name)
        assert field is not None
        values = self._array(parts["values"], DTYPES[field.type])
        valid = self._array(parts["valid"], np.dtype(np.bool_)) if "valid" in parts else None
        if field.type is not FieldType.STRING:
            return Column(values, valid)
        text = self._array(parts["text"], np.dtype(np.uint8)).tobytes()
        ends = self._array(parts["ends"], np.dtype(np.int64)).tolist()
        whole = text.decode()
        spans = zip([0, *ends[:-1]], ends, strict=False)
        if len(whole) == len(text):  # plain ASCII: places in the text are places in the bytes
            return Column(values, valid, Dictionary([whole[start:end] for start, end in spans]))
        texts = [text[start:end].decode() for start, end in spans]
        return Column(values, valid, Dictionary(texts))

    def _array(self, number: int, dtype: np.dtype[Any]) -> Array:
        count = self._lengths[number] // dtype.itemsize
        return np.frombuffer(self._map, dtype, count, self._starts[number]) if count else np.empty(0, dtype)
