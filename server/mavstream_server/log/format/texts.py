"""Serialization of the texts that a frame adds to its segment's dictionaries.

The texts have a checksum of their own, and each field's texts carry the code of the first one. So texts can
be recovered from a frame whose rows are damaged, and codes stay right behind a frame whose texts are lost.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from mavstream_server.log.format.layout import PADDING, padded

_PREFIX = struct.Struct("<HHIq")  # number of sections, marker, checksum of what follows, bytes of it
_MARKER = 0x7854  # "Tx"
_MARKED = re.compile(_MARKER.to_bytes(2, "little"))
_MARKER_AT = 2
_SECTION = struct.Struct("<IIqq")  # field, code of the first text, number of texts, bytes of the texts
# Segments of version 1 have neither checksum nor codes.
_OLD_PREFIX = struct.Struct("<q")
_OLD_SECTION = struct.Struct("<qqq")
# JSON strings can have lone surrogates; a log must return exactly what was appended.
_ERRORS = "surrogatepass"


class AddedTexts(NamedTuple):
    """Texts that a frame adds to the dictionary of a field."""

    field: int
    """The index of the field in the schema."""
    first_code: int | None
    """The code of the first text; None in segments of version 1, where it is the next one."""
    texts: list[str]


def encode_texts(added: Sequence[AddedTexts]) -> bytes:
    """Encode the texts added per field; the length is a multiple of 8."""
    parts: list[bytes] = []
    for field, first_code, texts in added:
        blob = "".join(texts).encode("utf-8", _ERRORS)
        # Lengths are in characters, not bytes: the blob is decoded once and then sliced as text.
        lengths = np.fromiter(map(len, texts), dtype=np.uint32, count=len(texts)).tobytes()
        parts += (_SECTION.pack(field, first_code or 0, len(texts), len(blob)), lengths)
        parts += (PADDING[len(lengths) % 8], blob, PADDING[len(blob) % 8])
    data = b"".join(parts)
    return _PREFIX.pack(len(added), _MARKER, crc32(data), len(data)) + data


def decode_texts(buffer: memoryview, offset: int) -> Iterator[AddedTexts]:
    """Yield the texts of each field that start at the offset; the frame must be intact."""
    sections, marker, _, _ = _PREFIX.unpack_from(buffer, offset)
    old = marker != _MARKER
    offset += _OLD_PREFIX.size if old else _PREFIX.size
    for _ in range(sections):
        first_code: int | None = None
        if old:
            field, count, size = _OLD_SECTION.unpack_from(buffer, offset)
            offset += _OLD_SECTION.size
        else:
            field, first_code, count, size = _SECTION.unpack_from(buffer, offset)
            offset += _SECTION.size
        lengths: npt.NDArray[np.uint32] = np.frombuffer(buffer, np.uint32, count, offset)
        offset += padded(4 * count)
        text = str(buffer[offset : offset + size], "utf-8", _ERRORS)
        offset += padded(size)
        texts = [text[start:stop] for start, stop in pairwise(accumulate(lengths.tolist(), initial=0))]
        yield AddedTexts(field, first_code, texts)


def recover_texts(buffer: memoryview, start: int, stop: int) -> list[AddedTexts]:
    """Return the texts with a correct checksum between two byte offsets of a damaged part of a segment."""
    found: list[AddedTexts] = []
    searched = start
    for match in _MARKED.finditer(buffer[start:stop]):
        offset = start + match.start() - _MARKER_AT
        behind = offset + _PREFIX.size
        # What is inside of texts that were found is not a marker, whatever it looks like.
        if offset < searched or offset % 8 or behind > stop:
            continue
        _, _, checksum, size = _PREFIX.unpack_from(buffer, offset)
        if 0 < size <= stop - behind and crc32(buffer[behind : behind + size]) == checksum:
            found += decode_texts(buffer, offset)
            searched = behind + size
    return found
