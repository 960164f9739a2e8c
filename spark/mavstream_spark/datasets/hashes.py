"""The hash of rows that `checksum` describes, of Arrow's columns and without Spark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]

_SEED = 42
_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_LONGEST = 32
"""Texts from here on are hashed in another way, which nobody here needs."""


def checksum_of_rows(rows: pa.Table) -> int:
    """Return the sum of the rows' hashes modulo 2**64; texts must be shorter than 32 bytes."""
    hashes = np.full(rows.num_rows, _SEED, np.uint64)
    mask = np.zeros(rows.num_rows, np.uint64)
    for place, column in enumerate(rows.columns):
        array = column.combine_chunks()
        null = array.is_null().to_numpy(zero_copy_only=False)
        mask += null.astype(np.uint64) << np.uint64(place % 62)
        # What is null leaves the hash as it is.
        hashes = np.where(null, hashes, _with_column(hashes, array))
    return int(np.sum(_with_long(hashes, mask), dtype=np.uint64))


def _with_column(hashes: Hashes, array: pa.Array) -> Hashes:
    if pa.types.is_string(array.type):
        return _with_texts(hashes, array.dictionary_encode())
    if pa.types.is_boolean(array.type):
        return _with_int(hashes, array.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint64))
    if pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    if pa.types.is_floating(array.type):
        # Both zeros are one number.
        return _with_long(hashes, (array.fill_null(0.0).to_numpy() + 0.0).view(np.uint64))
    return _with_long(hashes, array.fill_null(0).to_numpy().view(np.uint64))


def _with_texts(hashes: Hashes, texts: pa.DictionaryArray) -> Hashes:
    codes = texts.indices.fill_null(-1).to_numpy()
    found = hashes.copy()
    for code, text in enumerate(texts.dictionary.to_pylist()):
        chosen = codes == code
        found[chosen] = _with_bytes(hashes[chosen], text.encode())
    return found


def _with_bytes(hashes: Hashes, text: bytes) -> Hashes:
    assert len(text) < _LONGEST, text
    found = hashes + _PRIME_5 + np.uint64(len(text))
    place = 0
    while place + 8 <= len(text):
        found = _mixed_long(found, np.frombuffer(text, "<u8", 1, place))
        place += 8
    if place + 4 <= len(text):
        found = _mixed_int(found, np.frombuffer(text, "<u4", 1, place).astype(np.uint64))
        place += 4
    # Arrays of one: numpy warns where numbers by themselves overflow, as they shall here.
    for byte in np.frombuffer(text, np.uint8, offset=place).astype(np.uint64).reshape(-1, 1):
        found = _turned(found ^ (byte * _PRIME_5), 11) * _PRIME_1
    return _final(found)


def _with_long(hashes: Hashes, values: Hashes) -> Hashes:
    return _final(_mixed_long(hashes + _PRIME_5 + np.uint64(8), values))


def _with_int(hashes: Hashes, values: Hashes) -> Hashes:
    return _final(_mixed_int(hashes + _PRIME_5 + np.uint64(4), values))


def _mixed_long(hashes: Hashes, values: Hashes) -> Hashes:
    found: Hashes = _turned(hashes ^ (_turned(values * _PRIME_2, 31) * _PRIME_1), 27) * _PRIME_1 + _PRIME_4
    return found


def _mixed_int(hashes: Hashes, values: Hashes) -> Hashes:
    found: Hashes = _turned(hashes ^ (values * _PRIME_1), 23) * _PRIME_2 + _PRIME_3
    return found


def _turned(values: Hashes, bits: int) -> Hashes:
    found: Hashes = (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))
    return found


def _final(hashes: Hashes) -> Hashes:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _PRIME_2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _PRIME_3
    found: Hashes = hashes ^ (hashes >> np.uint64(32))
    return found
