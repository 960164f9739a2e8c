"""Snapshot format: the state of a running query as bytes that another process can load.

A snapshot is a JSON header followed by the arrays that it refers to, in order. Strings are saved as text,
since dictionary codes are valid only in the process that assigned them.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import orjson

from mavstream_protocol.errors import MavstreamError
from mavstream_server.columns.batch import Batch, Mark
from mavstream_server.columns.column import Array, Column, recode
from mavstream_server.columns.dictionary import Dictionary

VERSION = 1
_PREFIX = struct.Struct("<4sIQ")
_MAGIC = b"MvSn"


class SnapshotMismatch(MavstreamError):
    """A snapshot that belongs to another plan or log position, or cannot be read."""

    code = "snapshot_mismatch"


def encode(tree: dict[str, Any]) -> bytes:
    """Encode a tree of scalars, texts, arrays, columns and batches."""
    arrays: list[Array] = []
    header = orjson.dumps(_pack(tree, arrays), option=orjson.OPT_NON_STR_KEYS)
    header += b" " * (-len(header) % 8)
    parts = [_PREFIX.pack(_MAGIC, VERSION, len(header)), header]
    for array in arrays:
        data = np.ascontiguousarray(array).tobytes()
        parts += [data, bytes(-len(data) % 8)]
    return b"".join(parts)


def decode(data: bytes | memoryview) -> dict[str, Any]:
    """Decode a tree; raises SnapshotMismatch if the bytes are not a snapshot of this version."""
    if len(data) < _PREFIX.size or data[:4] != _MAGIC:
        raise SnapshotMismatch("these bytes are not a snapshot of a query; expected one that `snapshot` made")
    _, version, length = _PREFIX.unpack_from(data)
    if version != VERSION:
        raise SnapshotMismatch(
            f"the snapshot has version {version}, this program reads version {VERSION}; "
            "use the program that made it"
        )
    header = orjson.loads(data[_PREFIX.size : _PREFIX.size + length])
    tree = _Unpacker(data, _PREFIX.size + length).unpack(header)
    assert isinstance(tree, dict)
    return tree


def _pack(value: Any, arrays: list[Array]) -> Any:
    match value:
        case np.ndarray():
            arrays.append(value)
            return {"$array": [value.dtype.str, len(value)]}
        case np.generic():
            return value.item()
        case Column():
            return {"$column": _pack(_column_parts(value), arrays)}
        case Batch():
            parts = {
                "columns": value.columns,
                "size": value.size,
                "arrival": value.arrival,
                "time": value.time,
                "position": value.position,
                "row_watermark": value.row_watermark,
                "mark": None if value.mark is None else list(value.mark),
            }
            return {"$batch": _pack(parts, arrays)}
        case dict():
            return {key: _pack(item, arrays) for key, item in value.items()}
        case list() | tuple():
            return [_pack(item, arrays) for item in value]
        case _:
            return value


def _column_parts(column: Column) -> dict[str, Any]:
    if column.dictionary is None:
        return {"values": column.values, "valid": column.valid}
    used = Dictionary()
    codes = recode(column, used)
    encoded = [text.encode() for text in used.values]
    return {
        "values": codes,
        "valid": column.valid,
        "text": np.frombuffer(b"".join(encoded), dtype=np.uint8),
        "lengths": np.array([len(text) for text in encoded], dtype=np.int64),
    }


class _Unpacker:
    """Rebuilds the tree; the arrays follow the header in the order in which the header refers to them."""

    def __init__(self, data: bytes | memoryview, offset: int) -> None:
        self._data = data
        self._offset = offset

    def unpack(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.unpack(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "$array" in value:
            return self._array(*value["$array"])
        if "$column" in value:
            return self._column(self.unpack(value["$column"]))
        if "$batch" in value:
            return self._batch(self.unpack(value["$batch"]))
        return {key: self.unpack(item) for key, item in value.items()}

    def _array(self, dtype: str, length: int) -> Array:
        size = np.dtype(dtype).itemsize * length
        end = self._offset + size
        if end > len(self._data):
            raise SnapshotMismatch("the snapshot ends in the middle of an array; it was not written whole")
        array = np.frombuffer(self._data, dtype=dtype, count=length, offset=self._offset).copy()
        self._offset = end + -size % 8
        return array

    def _column(self, parts: dict[str, Any]) -> Column:
        if "text" not in parts:
            return Column(parts["values"], parts["valid"])
        text, dictionary = parts["text"].tobytes(), Dictionary()
        ends = np.cumsum(parts["lengths"]).tolist()
        starts = [0, *ends[:-1]]
        dictionary.extend(text[start:end].decode() for start, end in zip(starts, ends, strict=False))
        return Column(parts["values"], parts["valid"], dictionary)

    def _batch(self, parts: dict[str, Any]) -> Batch:
        mark = parts["mark"]
        return Batch(
            parts["columns"],
            parts["size"],
            parts["arrival"],
            time=parts["time"],
            position=parts["position"],
            row_watermark=parts["row_watermark"],
            mark=None if mark is None else Mark(*mark),
        )
