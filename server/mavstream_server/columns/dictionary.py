"""Dictionaries: the texts of string columns, by code."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

import numpy as np
import numpy.typing as npt

# Bytes of a string in CPython besides its characters: object header, list slot, index entry.
_STRING_OVERHEAD = 120


class Dictionary:
    """An append-only list of distinct strings; the code of a string is its index and never changes.

    A batch keeps the dictionaries of its columns alive; the texts are freed with the last batch.
    Operators that store strings for long recode them into a dictionary of their own.
    """

    __slots__ = ("_codes", "_memos", "nbytes", "values")

    def __init__(self, values: Iterable[str] = ()) -> None:
        self.values: list[str] = list(values)
        self.nbytes = 0
        self._codes: dict[str, int] = {}
        self._memos: dict[Hashable, npt.NDArray[np.generic]] = {}
        self._count(0)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def codes(self) -> dict[str, int]:
        """Codes by text; updated on use, so that dictionaries that are never searched have no index."""
        known = len(self._codes)
        if known < len(self.values):
            self._codes.update(zip(self.values[known:], range(known, len(self.values)), strict=True))
        return self._codes

    def code(self, text: str) -> int:
        """Return the code of a text, or -1 if it is unknown."""
        return self.codes.get(text, -1)

    def add(self, text: str) -> int:
        """Return the code of a text, appending it if it is new."""
        return self.add_all((text,))[0]

    def add_all(self, texts: Iterable[str]) -> list[int]:
        """Return the codes of texts, appending those that are new."""
        codes, values = self.codes, self.values
        known, found = len(values), []
        for text in texts:
            code = codes.get(text)
            if code is None:
                code = codes[text] = len(values)
                values.append(text)
            found.append(code)
        self._count(known)
        return found

    def extend(self, texts: Iterable[str]) -> None:
        """Append texts that are known to be new and distinct."""
        known = len(self.values)
        self.values.extend(texts)
        self._count(known)

    def _count(self, known: int) -> None:
        added = self.values[known:]
        self.nbytes += sum(map(len, added)) + _STRING_OVERHEAD * len(added)

    def objects(self) -> npt.NDArray[np.object_]:
        """Return the texts as an object array, to be indexed by codes."""
        array = np.empty(len(self.values), dtype=object)
        array[:] = self.values
        return array

    def memo(
        self, key: Hashable, compute: Callable[[list[str]], npt.NDArray[np.generic]]
    ) -> npt.NDArray[np.generic]:
        """Return `compute` of every text, computed once per text and cached under `key`.

        `compute` must be element-wise: it is called only with the texts that were added since the last call.
        """
        known = self._memos.get(key)
        if known is None:
            known = compute(self.values)
        elif len(known) < len(self.values):
            known = np.concatenate([known, compute(self.values[len(known) :])])
        else:
            return known
        self._memos[key] = known
        return known
