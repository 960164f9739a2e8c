"""Checksums of rows that depend on neither their order nor their partitioning.

The hash of a row is Spark's `xxhash64` over its columns in order and a bit mask of the columns that are null
(Spark's hash skips nulls). The checksum is the sum of the hashes modulo 2**64, as 16 hexadecimal digits;
unlike an exclusive or, a sum changes when a row is duplicated.

Spark computes it for rows that Spark has (`checksum_columns`), numpy for rows that Python workers have
(`sum_of_hashes`). A test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Hashes = NDArray[np.uint64]

_HIGH, _LOW, _ROWS = "high", "low", "rows"
_MASK_BITS = 62
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
_MAX_TEXT_BYTES = 31
"""xxHash64 reads longer texts in blocks of 32 bytes, which `sum_of_hashes` does not implement."""


def digits(total: int) -> str:
    """Return a sum of hashes as it is written in the manifest."""
    return f"{total % (1 << 64):016x}"


def checksum_columns(names: Sequence[str]) -> list[Column]:
    """Return the aggregates that `checksum_of` needs; the hash is summed in halves so as not to overflow."""
    from pyspark.sql.functions import expr

    mask = " + ".join(
        f"IF(`{name}` IS NULL, {1 << index % _MASK_BITS}L, 0L)" for index, name in enumerate(names)
    )
    hashed = f"xxhash64({', '.join(f'`{name}`' for name in names)}, {mask})"
    return [
        expr("count(1)").alias(_ROWS),
        expr(f"sum(shiftright({hashed}, 32))").alias(_HIGH),
        expr(f"sum({hashed} & 4294967295L)").alias(_LOW),
    ]


def checksum_of(values: Mapping[str, Any]) -> tuple[int, str]:
    """Return the number of rows and the checksum from the values of the aggregates."""
    return int(values[_ROWS]), digits(((values[_HIGH] or 0) << 32) + (values[_LOW] or 0))


def checksum(frame: DataFrame) -> tuple[int, str]:
    """Count and hash the rows of a frame with Spark."""
    (row,) = frame.agg(*checksum_columns(frame.columns)).collect()
    return checksum_of(row.asDict())


def sum_of_hashes(rows: pa.Table) -> int:
    """Return the sum of the rows' hashes modulo 2**64; texts may have at most 31 bytes."""
    hashes = np.full(rows.num_rows, _SEED, np.uint64)
    mask = np.zeros(rows.num_rows, np.uint64)
    for index, column in enumerate(rows.columns):
        array = column.combine_chunks()
        null = array.is_null().to_numpy(zero_copy_only=False)
        mask += null.astype(np.uint64) << np.uint64(index % _MASK_BITS)
        # A null leaves the hash as it is.
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
        # Adding 0.0 makes -0.0 and 0.0 the same number, as in Spark.
        return _with_long(hashes, (array.fill_null(0.0).to_numpy() + 0.0).view(np.uint64))
    return _with_long(hashes, array.fill_null(0).to_numpy().view(np.uint64))


def _with_texts(hashes: Hashes, texts: pa.DictionaryArray) -> Hashes:
    codes = texts.indices.fill_null(-1).to_numpy()
    result = hashes.copy()
    for code, text in enumerate(texts.dictionary.to_pylist()):
        chosen = codes == code
        result[chosen] = _with_bytes(hashes[chosen], text.encode())
    return result


def _with_bytes(hashes: Hashes, text: bytes) -> Hashes:
    assert len(text) <= _MAX_TEXT_BYTES, text
    result = hashes + _PRIME_5 + np.uint64(len(text))
    offset = 0
    while offset + 8 <= len(text):
        result = _mix_long(result, np.frombuffer(text, "<u8", 1, offset))
        offset += 8
    if offset + 4 <= len(text):
        result = _mix_int(result, np.frombuffer(text, "<u4", 1, offset).astype(np.uint64))
        offset += 4
    # Arrays of one element: numpy warns when scalars overflow, which is intended here.
    for byte in np.frombuffer(text, np.uint8, offset=offset).astype(np.uint64).reshape(-1, 1):
        result = _rotate(result ^ (byte * _PRIME_5), 11) * _PRIME_1
    return _finish(result)


def _with_long(hashes: Hashes, values: Hashes) -> Hashes:
    return _finish(_mix_long(hashes + _PRIME_5 + np.uint64(8), values))


def _with_int(hashes: Hashes, values: Hashes) -> Hashes:
    return _finish(_mix_int(hashes + _PRIME_5 + np.uint64(4), values))


def _mix_long(hashes: Hashes, values: Hashes) -> Hashes:
    mixed: Hashes = _rotate(hashes ^ (_rotate(values * _PRIME_2, 31) * _PRIME_1), 27) * _PRIME_1 + _PRIME_4
    return mixed


def _mix_int(hashes: Hashes, values: Hashes) -> Hashes:
    mixed: Hashes = _rotate(hashes ^ (values * _PRIME_1), 23) * _PRIME_2 + _PRIME_3
    return mixed


def _rotate(values: Hashes, bits: int) -> Hashes:
    rotated: Hashes = (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))
    return rotated


def _finish(hashes: Hashes) -> Hashes:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _PRIME_2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _PRIME_3
    finished: Hashes = hashes ^ (hashes >> np.uint64(32))
    return finished
