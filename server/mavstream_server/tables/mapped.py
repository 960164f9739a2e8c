"""Files of arrays: a JSON header followed by plain arrays that are memory-mapped."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from mavstream_server.columns.column import Array
from mavstream_server.tables.errors import TableFilesError

_PREFIX = struct.Struct("<8sII")  # magic, version of the format, bytes of the header
_FORMAT = 1
_ALIGN = 64
_MOST_HEADER = 1 << 20


def write_arrays(
    file: Path, magic: bytes, header: dict[str, Any], arrays: Sequence[Array], sync: bool
) -> None:
    """Write contiguous arrays, which readers address by index; `magic` has eight bytes."""
    text = orjson.dumps({**header, "lengths": [array.nbytes for array in arrays]})
    text += b" " * (-(_PREFIX.size + len(text)) % _ALIGN)
    with file.open("wb") as stream:
        stream.write(_PREFIX.pack(magic, _FORMAT, len(text)) + text)
        for array in arrays:
            stream.write(array.data)
            stream.write(bytes(-array.nbytes % _ALIGN))
        stream.flush()
        if sync:
            os.fsync(stream.fileno())


class MappedArrays:
    """A memory-mapped file of arrays: pages are read on first use and shared between processes."""

    def __init__(self, file: Path, magic: bytes, what: str) -> None:
        """Raises TableFilesError if the file is missing or is not `what` it should be."""
        self._file = file
        try:
            with file.open("rb") as stream:
                self.nbytes = os.fstat(stream.fileno()).st_size
                self._map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise TableFilesError(file, f"cannot be read ({error}); put the table again") from None
        self.header = self._read_header(magic, what)
        self._lengths: list[int] = self.header["lengths"]
        padded = [length + -length % _ALIGN for length in self._lengths]
        self._starts = [self._data + sum(padded[:number]) for number in range(len(padded))]
        if self._data + sum(padded) != self.nbytes:
            raise TableFilesError(
                file, f"expected {self._data + sum(padded)} bytes, got {self.nbytes}; put the table again"
            )

    def _read_header(self, magic: bytes, what: str) -> dict[str, Any]:
        if self.nbytes < _PREFIX.size or self._map[:8] != magic:
            raise TableFilesError(
                self._file, f"expected {what}, got another kind of file; move the file away"
            )
        _, version, length = _PREFIX.unpack_from(self._map)
        self._data = _PREFIX.size + length
        if version != _FORMAT or length > min(_MOST_HEADER, self.nbytes):
            raise TableFilesError(
                self._file, f"expected format {_FORMAT}, got {version}; use the release that wrote it"
            )
        header: dict[str, Any] = orjson.loads(self._map[_PREFIX.size : self._data])
        return header

    def array(self, number: int, dtype: np.dtype[Any]) -> Array:
        """Return an array by index; it stays readable even after the file was removed."""
        count = self._lengths[number] // dtype.itemsize
        return np.frombuffer(self._map, dtype, count, self._starts[number]) if count else np.empty(0, dtype)
