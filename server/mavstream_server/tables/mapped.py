"""Files of arrays: a JSON header followed by plain arrays that are memory-mapped."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from zlib_ng.zlib_ng import crc32

from mavstream_server.columns.column import Array
from mavstream_server.core.storage import failpoints
from mavstream_server.tables.errors import TableFilesError

_PREFIX = struct.Struct("<8sII")  # magic, version of the format, bytes of the header
_FORMAT = 1
_ALIGN = 64
_MOST_HEADER = 1 << 20
_CHECKSUM = "crc"


def write_arrays(
    file: Path, magic: bytes, header: dict[str, Any], arrays: Sequence[Array], sync: bool
) -> None:
    """Write contiguous arrays, which readers address by index; `magic` has eight bytes."""
    header = {**header, "lengths": [array.nbytes for array in arrays]}
    text = orjson.dumps({**header, _CHECKSUM: _checksum(header, [array.data for array in arrays])})
    text += b" " * (-(_PREFIX.size + len(text)) % _ALIGN)
    failpoints.hit("table.write.before")
    with file.open("wb") as stream:
        stream.write(_PREFIX.pack(magic, _FORMAT, len(text)) + text)
        for array in arrays:
            stream.write(array.data)
            stream.write(bytes(-array.nbytes % _ALIGN))
        stream.flush()
        if sync:
            os.fsync(stream.fileno())
    failpoints.hit("table.write.after")


def _checksum(header: dict[str, Any], arrays: Iterable[memoryview]) -> int:
    """Return the checksum of the header, without the checksum itself, and of the arrays."""
    checksum = crc32(orjson.dumps(header))
    for array in arrays:
        checksum = crc32(array, checksum)
    return checksum


class MappedArrays:
    """A memory-mapped file of arrays: pages are read on first use and shared between processes."""

    def __init__(self, file: Path, magic: bytes, what: str, *, verify: bool = True) -> None:
        """Raises TableFilesError if the file is missing, damaged, or is not `what` it should be.

        Without `verify` the arrays are not read.
        """
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
        if verify:
            self._verify()

    def _verify(self) -> None:
        """Compare the checksum; files of earlier releases have none."""
        expected = self.header.get(_CHECKSUM)
        view = memoryview(self._map)
        arrays = [
            view[start : start + length] for start, length in zip(self._starts, self._lengths, strict=True)
        ]
        header = {name: value for name, value in self.header.items() if name != _CHECKSUM}
        if expected is not None and _checksum(header, arrays) != expected:
            raise TableFilesError(self._file, "the checksum is wrong: it is damaged; put the table again")

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
        try:
            header: dict[str, Any] = orjson.loads(self._map[_PREFIX.size : self._data])
            return {**header, "lengths": [int(length) for length in header["lengths"]]}
        except (ValueError, TypeError, KeyError) as error:
            raise TableFilesError(
                self._file, f"the header is damaged ({error}); put the table again"
            ) from None

    def array(self, number: int, dtype: np.dtype[Any]) -> Array:
        """Return an array by index; it stays readable even after the file was removed."""
        count = self._lengths[number] // dtype.itemsize
        return np.frombuffer(self._map, dtype, count, self._starts[number]) if count else np.empty(0, dtype)
