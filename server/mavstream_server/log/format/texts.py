"""Serialization of the texts that a frame adds to its segment's dictionaries."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from mavstream_server.log.format.layout import PADDING, padded

_SECTIONS = struct.Struct("<q")
_SECTION = struct.Struct("<qqq")
# JSON strings can have lone surrogates; a log must return exactly what was appended.
_ERRORS = "surrogatepass"


def encode_texts(added: Sequence[tuple[int, Sequence[str]]]) -> bytes:
    """Encode the texts added per field (index into the schema); the length is a multiple of 8."""
    parts: list[bytes] = [_SECTIONS.pack(len(added))]
    for index, texts in added:
        blob = "".join(texts).encode("utf-8", _ERRORS)
        # Lengths are in characters, not bytes: the blob is decoded once and then sliced as text.
        lengths = np.fromiter(map(len, texts), dtype=np.uint32, count=len(texts)).tobytes()
        parts += (_SECTION.pack(index, len(texts), len(blob)), lengths, PADDING[len(lengths) % 8])
        parts += (blob, PADDING[len(blob) % 8])
    return b"".join(parts)


def decode_texts(buffer: memoryview, offset: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the field index and the texts of each section that starts at the offset."""
    (sections,) = _SECTIONS.unpack_from(buffer, offset)
    offset += _SECTIONS.size
    for _ in range(sections):
        index, count, size = _SECTION.unpack_from(buffer, offset)
        offset += _SECTION.size
        lengths: npt.NDArray[np.uint32] = np.frombuffer(buffer, np.uint32, count, offset)
        offset += padded(4 * count)
        text = str(buffer[offset : offset + size], "utf-8", _ERRORS)
        offset += padded(size)
        yield index, [text[start:stop] for start, stop in pairwise(accumulate(lengths.tolist(), initial=0))]
