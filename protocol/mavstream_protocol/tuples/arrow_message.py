"""Single record batch messages of Arrow, which say how many columns they have but not which."""

from __future__ import annotations

import struct
from typing import TypeAlias

import pyarrow as pa

Buffer: TypeAlias = bytes | bytearray | memoryview

_U16, _U32, _I32 = struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<i")
# Fields of the flatbuffer tables Message and RecordBatch, by index.
_HEADER, _NODES = 2, 1


def columns_of_message(payload: Buffer) -> int | None:
    """Return how many columns a record batch message has, or None; columns must not be nested."""
    try:
        metadata = pa.ipc.read_message(pa.py_buffer(payload)).metadata.to_pybytes()
        batch = _target(metadata, _U32.unpack_from(metadata)[0], _HEADER)
        return int(_U32.unpack_from(metadata, _target(metadata, batch, _NODES))[0])
    except (pa.ArrowException, OSError, EOFError, ValueError, struct.error):
        return None


def _target(data: bytes, table: int, index: int) -> int:
    """Return where the value of a table's field is that is stored by reference; raises ValueError."""
    layout = table - _I32.unpack_from(data, table)[0]
    slot = 4 + 2 * index
    offset = _U16.unpack_from(data, layout + slot)[0] if slot < _U16.unpack_from(data, layout)[0] else 0
    if not offset:
        raise ValueError("the field is missing")
    return int(table + offset + _U32.unpack_from(data, table + offset)[0])
