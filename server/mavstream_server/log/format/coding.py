"""Dictionary encoding of string columns into the segment being written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import numpy as np
import numpy.typing as npt

from mavstream_server.columns.column import Column, Ints, recode
from mavstream_server.columns.dictionary import Dictionary
from mavstream_server.log.format.layout import Layout
from mavstream_server.log.format.texts import AddedTexts

Codes = npt.NDArray[np.int32]

# A cached mapping takes 8 bytes per text of the source dictionary, for every log that it is written to.
# For larger dictionaries only the texts of the current frame are looked up.
_CACHED_TEXTS = 16_384
_FEW = 16  # rows


class SegmentCoder:
    """The dictionaries of the segment being written, one per string field of the schema.

    The mapping of a source dictionary's codes is stored in that dictionary's memo, so it grows and is freed
    with it; the writer keeps no source alive. Mapped codes have the generation in their upper half: `restart`
    invalidates all of them at once, without access to the sources.
    """

    def __init__(self, layout: Layout) -> None:
        self._token = object()
        self._fields = layout.text_fields
        self._generation = 0
        self.dictionaries: dict[int, Dictionary] = {}
        self._logged: dict[int, int] = {}
        self.texts = 0
        """How many texts the segment's frames have; an overestimate after an append has failed."""
        self.text_size = 0
        """Characters of all texts of the segment; an overestimate after an append has failed."""
        self.restart()

    def restart(self) -> None:
        """Start a new segment with empty dictionaries."""
        self._generation += 1
        self.dictionaries = {index: Dictionary() for index in self._fields}
        self._logged = dict.fromkeys(self._fields, 0)
        self.texts = self.text_size = 0

    def load(self, sections: Iterable[AddedTexts]) -> None:
        """Add texts that are already in the segment's frames."""
        for index, _, texts in sections:
            self.dictionaries[index].extend(texts)
            self._logged[index] = len(self.dictionaries[index])
            self.texts += len(texts)
            self.text_size += sum(map(len, texts))

    def take_added(self) -> list[AddedTexts]:
        """Return, per field, the texts that no frame has yet, and record that the next frame has them."""
        logged, added = self._logged, []
        for index, dictionary in self.dictionaries.items():
            if len(dictionary.values) > logged[index]:
                texts = dictionary.values[logged[index] :]
                added.append(AddedTexts(index, logged[index], texts))
                logged[index] += len(texts)
                self.texts += len(texts)
                self.text_size += sum(map(len, texts))
        return added

    def checkpoint(self) -> dict[int, int]:
        """Return how many texts of each field are in frames, for `undo`."""
        return dict(self._logged)

    def undo(self, logged: dict[int, int]) -> None:
        """Return to a checkpoint because the frames after it were not written."""
        self._logged = logged

    def codes(self, index: int, column: Column) -> Codes:
        """Return the segment's codes of a string column's rows; null rows get 0."""
        source = column.dictionary
        assert source is not None
        if column.valid is None:
            return self._mapped(index, source, column.values)
        codes = np.zeros(len(column.values), dtype=np.int32)
        rows = np.flatnonzero(column.valid)
        if len(rows):
            codes[rows] = self._mapped(index, source, column.values.take(rows))
        return codes

    def codes_of(self, index: int, texts: list[str]) -> list[int]:
        """Return the segment's codes of a few texts."""
        return _codes_of(texts, self.dictionaries[index])

    def _mapped(self, index: int, source: Dictionary, codes: Codes) -> Codes:
        target = self.dictionaries[index]
        if len(codes) <= _FEW:
            texts = source.values
            return np.array(_codes_of([texts[code] for code in codes.tolist()], target), dtype=np.int32)
        if len(source) > _CACHED_TEXTS:
            return recode(Column(codes, None, source), target)
        mapping = cast(Ints, source.memo((self._token, index), _unmapped))
        floor = self._generation << 32
        mapped = mapping.take(codes)
        stale = mapped < floor
        if np.count_nonzero(stale):
            texts = source.values
            for code in sorted(set(codes[stale].tolist())):
                mapping[code] = floor + target.add(texts[code])
            mapped = mapping.take(codes)
        return mapped.astype(np.int32)  # the lower half


def _codes_of(texts: list[str], target: Dictionary) -> list[int]:
    """Look up texts one by one, which for few of them is faster than vectorized calls."""
    known = target.codes
    found = []
    for text in texts:
        code = known.get(text)
        found.append(target.add(text) if code is None else code)
    return found


def _unmapped(texts: list[str]) -> npt.NDArray[np.generic]:
    return np.zeros(len(texts), dtype=np.int64)
