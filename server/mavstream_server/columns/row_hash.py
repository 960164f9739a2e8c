"""Hashes of rows: 128 bits per row that depend on its values alone, not on codes, batches or processes."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mavstream_server.columns.column import Column

Words = npt.NDArray[np.uint64]

# The finalizer of SplitMix64 and two odd constants, one for each half of the hash.
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_STEPS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1342543DE82EF95)
_NULL = np.uint64(0x6A09E667F3BCC909)
_THIRTY, _TWENTY_SEVEN, _THIRTY_ONE = np.uint64(30), np.uint64(27), np.uint64(31)


class RowHashes(NamedTuple):
    """The two halves of the hash of each row."""

    high: Words
    low: Words


def row_hashes(columns: Sequence[Column], size: int) -> RowHashes:
    """Return the hash of each row over the columns, in their order."""
    halves = [np.full(size, step, dtype=np.uint64) for step in _STEPS]
    for column in columns:
        words = _text_words(column) if column.dictionary is not None else _plain_words(column)
        for index, step in enumerate(_STEPS):
            value = words[index].copy()
            if column.valid is not None:
                value[~column.valid] = _NULL
            halves[index] = _mix((halves[index] ^ value) + step)
    return RowHashes(*halves)


def _plain_words(column: Column) -> tuple[Words, Words]:
    values = column.values
    if values.dtype.kind == "f":
        # Equal numbers have one hash: 0.0 and -0.0, and all that are not a number.
        values = np.where(np.isnan(values), np.nan, values + 0.0)
        words = values.view(np.uint64)
    else:
        words = values.astype(np.int64).view(np.uint64)
    return _mix(words + _STEPS[0]), _mix(words ^ _STEPS[1])


def _text_words(column: Column) -> tuple[Words, Words]:
    assert column.dictionary is not None
    codes = column.values if column.valid is None else np.where(column.valid, column.values, 0)
    if not len(column.dictionary):  # all values are null
        zeros = np.zeros(len(codes), dtype=np.uint64)
        return zeros, zeros
    used, inverse = np.unique(codes, return_inverse=True)
    texts = column.dictionary.values
    digests = b"".join([blake2b(texts[code].encode(), digest_size=16).digest() for code in used.tolist()])
    words = np.frombuffer(digests, dtype="<u8").reshape(-1, 2)[inverse]
    return words[:, 0], words[:, 1]


def _mix(words: Words) -> Words:
    words = (words ^ (words >> _THIRTY)) * _FIRST
    words = (words ^ (words >> _TWENTY_SEVEN)) * _SECOND
    return words ^ (words >> _THIRTY_ONE)
