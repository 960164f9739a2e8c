"""The memory-mapped texts of a version's column: found by hash, decoded when needed."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mavstream_server.columns.column import Array, Column, Ints
from mavstream_server.columns.dictionary import Dictionary

Hashes = npt.NDArray[np.uint64]


class MappedTexts:
    """Distinct texts by code: concatenated UTF-8, and the byte offset at which each ends."""

    def __init__(self, text: Array, ends: Ints) -> None:
        self._text = text
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends)

    def raw(self, code: int) -> bytes:
        """Return the UTF-8 bytes of a text."""
        start = int(self._ends[code - 1]) if code else 0
        return self._text[start : int(self._ends[code])].tobytes()

    def decoded(self, codes: Ints) -> list[str]:
        """Return the texts of codes."""
        return [self.raw(code).decode() for code in codes.tolist()]

    def dictionary(self) -> Dictionary:
        """Load all texts into memory."""
        text, ends = self._text.tobytes(), self._ends.tolist()
        whole = text.decode()
        spans = zip([0, *ends[:-1]], ends, strict=False)
        if len(whole) == len(text):  # ASCII: character offsets are byte offsets
            return Dictionary([whole[start:end] for start, end in spans])
        return Dictionary([text[start:end].decode() for start, end in spans])


class TextHashes(NamedTuple):
    """An index of texts: sorted hashes, and the code of the text of each."""

    hashes: Hashes
    codes: Ints

    @classmethod
    def of(cls, texts: Sequence[str]) -> TextHashes:
        """Hash texts, whose codes are their indexes."""
        hashes = _hashed([text.encode() for text in texts])
        order = hashes.argsort(kind="stable")
        return cls(hashes.take(order), order.astype(np.int64))

    def find(self, wanted: Sequence[str], texts: MappedTexts) -> list[int]:
        """Return the codes of texts, -1 for unknown ones; texts with equal hashes are compared."""
        raw = [text.encode() for text in wanted]
        hashes = _hashed(raw)
        firsts = np.searchsorted(self.hashes, hashes, "left").tolist()
        behind = np.searchsorted(self.hashes, hashes, "right").tolist()
        found = []
        for text, first, last in zip(raw, firsts, behind, strict=True):
            codes = self.codes[first:last].tolist()
            found.append(next((code for code in codes if texts.raw(code) == text), -1))
        return found


def _hashed(texts: Sequence[bytes]) -> Hashes:
    # Python's own hash differs between processes.
    digests = b"".join(blake2b(text, digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


class UsedTexts:
    """A column of codes with a dictionary of only those texts that were used so far."""

    def __init__(self, bare: Column, texts: MappedTexts) -> None:
        self._bare = bare
        self._texts = texts
        self._recoded = np.full(len(texts), -1, dtype=np.int32)  # by code in the file
        self._dictionary = Dictionary()

    @property
    def nbytes(self) -> int:
        """Bytes in memory or mapped."""
        return self._bare.nbytes + self._recoded.nbytes + self._dictionary.nbytes

    def take(self, rows: Ints) -> Column:
        """Return the column of the given rows, with their texts."""
        taken = self._bare.take(rows)
        if not len(self._texts):  # all rows are null
            return Column(taken.values, taken.valid, self._dictionary)
        recoded = self._recoded.take(taken.values)
        if len(recoded) and recoded.min() < 0:
            new = np.unique(taken.values[recoded < 0]).astype(np.int64)
            first = len(self._dictionary)
            self._dictionary.extend(self._texts.decoded(new))
            self._recoded[new] = np.arange(first, first + len(new), dtype=np.int32)
            recoded = self._recoded.take(taken.values)
        return Column(recoded, taken.valid, self._dictionary)
