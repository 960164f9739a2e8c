"""Hash tables: the codes of scattered integer keys, looked up and added as whole arrays."""

from __future__ import annotations

import secrets

import numpy as np
import numpy.typing as npt

from mavstream_server.columns.column import Ints
from mavstream_server.columns.pieces import Steps, pieces

_LEAST_BITS = 10
_FEW = 128  # keys that are added one by one
_PAGE = 1024  # slots
_TOUCHED = 64 * _PAGE
"""Slots of a new table whose memory is mapped in one piece."""
_HALF = np.uint64(32)
# Drawn anew by each process, so that nobody can choose keys that collide.
_FACTORS = np.uint64(secrets.randbits(64) | 1), np.uint64(secrets.randbits(64) | 1)


class HashTable:
    """Open addressing with linear probing, at most half full.

    A slot has the code of a key plus one, zero if it is free; the keys are stored by their owner, by code. A
    table does not grow; `of` builds a larger one in steps.
    """

    __slots__ = ("_mask", "_shift", "_slots")

    def __init__(self, keys: int) -> None:
        """Create an empty table for so many keys."""
        bits = max(_LEAST_BITS, (2 * keys - 1).bit_length())
        self._slots: npt.NDArray[np.int32] = np.zeros(1 << bits, dtype=np.int32)
        self._mask = (1 << bits) - 1
        self._shift = np.uint64(64 - bits)

    @property
    def capacity(self) -> int:
        """The most keys."""
        return len(self._slots) // 2

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self._slots.nbytes

    def find(self, values: Ints, keys: Ints) -> Ints:
        """Return the codes of values; -1 for those that are not known. `keys` are those added, by code."""
        places = self._places(values)
        codes = self._codes(places)
        if not len(keys):
            return codes
        wrong = np.flatnonzero((keys.take(codes) != values) & (codes >= 0))
        while len(wrong):
            places = (places if len(places) == len(wrong) else places.take(wrong)) + 1 & self._mask
            some = self._codes(places)
            codes[wrong] = some
            again = np.flatnonzero((keys.take(some) != values.take(wrong)) & (some >= 0))
            wrong, places = wrong.take(again), places.take(again)
        return codes

    def add(self, values: Ints, first: int) -> None:
        """Add distinct values that are not known; they get the codes from `first` on."""
        slots, places = self._slots, self._places(values)
        if len(values) <= _FEW:
            for code, place in enumerate(places.tolist(), first + 1):
                free = place
                while slots[free]:
                    free = free + 1 & self._mask
                slots[free] = code
            return
        codes = np.arange(first + 1, first + 1 + len(values), dtype=np.int32)
        while len(places):
            free = slots.take(places) == 0
            slots[places[free]] = codes[free]  # of several codes for one slot, one wins
            lost = np.flatnonzero(slots.take(places) != codes)
            places, codes = places.take(lost) + 1 & self._mask, codes.take(lost)

    @classmethod
    def of(cls, keys: Ints, coming: int) -> Steps[HashTable]:
        """Return a table of these keys, whose codes are their indexes, with room for others."""
        table = cls(2 * (len(keys) + coming))
        for start in range(0, len(table._slots), _TOUCHED):
            # The system maps memory at the first access: keys are spread over all of it at once.
            table._slots[start : start + _TOUCHED : _PAGE] = 0
            yield
        for piece in pieces(len(keys)):
            table.add(keys[piece], piece.start)
            yield
        return table

    def _codes(self, places: Ints) -> Ints:
        return self._slots.take(places).astype(np.int64) - 1

    def _places(self, values: Ints) -> Ints:
        """Return the slot of each value at which searching for it begins."""
        words = values.view(np.uint64) * _FACTORS[0]
        words ^= words >> _HALF
        words *= _FACTORS[1]
        words >>= self._shift
        return words.view(np.int64)
