"""The dictionaries of a mapped segment, filled from its frames; they know which texts damage has lost."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mavstream_server.columns.dictionary import Dictionary
from mavstream_server.log.format.frame import Frame
from mavstream_server.log.format.layout import Layout
from mavstream_server.log.format.texts import AddedTexts


class SegmentTexts:
    """One dictionary per string field of a segment.

    Behind a damaged frame, codes may refer to texts that were lost with it. Their places are filled with
    placeholders, so that all other codes stay right, and `known` tells which frames can be read.
    """

    def __init__(self, layout: Layout) -> None:
        self.dictionaries: list[Dictionary | None] = [
            Dictionary() if index in layout.text_fields else None for index in range(layout.width)
        ]
        """By index of the field in the schema; None for fields that are not strings."""
        self._fields = [(index, layout.names[index]) for index in layout.text_fields]
        self.doubtful = False
        """Whether texts may have been lost."""
        self._lost: dict[int, list[range]] = {index: [] for index in layout.text_fields}

    def load(self, added: Iterable[AddedTexts]) -> int:
        """Add the texts of a frame; return the memory used, in bytes."""
        cost = 0
        for field, first_code, texts in added:
            dictionary = self.dictionaries[field]
            assert dictionary is not None
            before, known = dictionary.nbytes, len(dictionary)
            if self.doubtful:
                if first_code is None or first_code < known:
                    continue  # cannot be placed, or is there already
                self._lost[field].append(range(known, first_code))
                dictionary.extend(f"\ud800lost text {code}" for code in range(known, first_code))
            dictionary.extend(texts)
            cost += dictionary.nbytes - before
        return cost

    def known(self, frame: Frame) -> bool:
        """Return whether all texts of a frame are known."""
        for field, name in self._fields:
            column, dictionary = frame.column(name), self.dictionaries[field]
            assert dictionary is not None
            codes = column.values if column.valid is None else column.values[column.valid]
            if not len(codes):
                continue
            if int(codes.max()) >= len(dictionary):
                return False
            for lost in self._lost[field]:
                if np.count_nonzero((codes >= lost.start) & (codes < lost.stop)):
                    return False
        return True
