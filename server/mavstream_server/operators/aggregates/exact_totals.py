"""Exact totals of floats: whole numbers, whose sum does not depend on the order of the rows.

A float is a fraction of 53 bits times a power of two. Shifted to a multiple of 14 bits it is cut in two, and
both parts are added to limbs: 64-bit integers, each worth 14 bits more than the one before. Limbs have space
for millions of rows before carries must be moved, and integers can be added in any order. Only those limbs
are stored that the values so far need: numbers of similar magnitude take three or four.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mavstream_server.columns.column import Array, Ints
from mavstream_server.columns.pieces import Steps, copied, pieces, taken

_BITS = 14
_LOW_BITS = 2 * _BITS
"""Bits of the lower part of a value; the higher one has at most 39."""
_HEADROOM = 1 << 23
"""Additions to a limb that are sure to fit: 2^39 each."""
_DIGIT = (1 << _BITS) - 1
ROWS_AT_ONCE = 8192
"""Rows whose intermediate results stay in the processor's cache."""


class ExactTotals:
    """The exact total of each of many slots; values must be finite."""

    def __init__(self) -> None:
        self._first = 0  # the number of the lowest limb; limb i is worth 2^(14 i)
        self._limbs: Ints = np.zeros((16, 0), dtype=np.int64)
        self._added = 0  # an upper bound of the additions to a limb since carries were moved

    @property
    def nbytes(self) -> int:
        """Bytes of the limbs."""
        return self._limbs.nbytes

    def reserve(self, size: int, capacity: int) -> Steps[None]:
        """Provide space for `capacity` slots, of which `size` are in use, in steps."""
        self._limbs = yield from copied(self._limbs[:size], capacity)

    def clear(self, first: int, stop: int) -> None:
        """Set the totals of slots that come into use to zero."""
        self._limbs[first:stop] = 0

    def add(self, slots: Ints, values: Array, exponents: Ints | None = None) -> None:
        """Add values, each times two to the power of its exponent, to their slots, which may repeat."""
        for start in range(0, len(values), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            self._add(slots[rows], values[rows], None if exponents is None else exponents[rows])

    def _add(self, slots: Ints, values: Array, exponents: Ints | None) -> None:
        fractions, powers = np.frexp(values)
        places = powers if exponents is None else powers + exponents
        if not values.all():
            places[values == 0.0] = places.max()  # zeros need no limbs
        places -= 53
        limbs = places // _BITS
        low, high = int(limbs.min()), int(limbs.max())
        self._reserve(low, high + 3, len(values))
        places -= limbs * _BITS
        places += 53
        fractions = np.ldexp(fractions, places)
        upper = np.floor(fractions * 0.5**_LOW_BITS)
        fractions -= upper * 2.0**_LOW_BITS
        width = self._limbs.shape[1]
        cells = slots * width
        cells += low - self._first if low == high else limbs - self._first
        flat = self._limbs.reshape(-1)
        np.add.at(flat, cells, fractions.astype(np.int64))
        cells += _LOW_BITS // _BITS
        np.add.at(flat, cells, upper.astype(np.int64))

    def merging(self, slots: Ints, other: ExactTotals, size: int) -> Steps[None]:
        """Add the first `size` totals of another state to `slots`, which are distinct, in steps."""
        width = other._limbs.shape[1]
        if not width:
            return
        self._reserve(other._first, other._first + width, other._added)
        start = other._first - self._first
        for piece in pieces(size):
            self._limbs[slots[piece], start : start + width] += other._limbs[piece]
            yield

    def view(self, slots: slice) -> ExactTotals:
        """Return the totals of consecutive slots, to be read."""
        return self._with(self._limbs[slots])

    def taking(self, slots: Ints) -> Steps[ExactTotals]:
        """Return a copy of the totals of the given slots, with space for one at least, in steps."""
        if len(slots):
            return self._with((yield from taken(self._limbs, slots)))
        return self._with(np.zeros((1, self._limbs.shape[1]), dtype=np.int64))

    def _with(self, limbs: Ints) -> ExactTotals:
        other = ExactTotals()
        other._first, other._added, other._limbs = self._first, self._added, limbs
        return other

    def rounded(self, size: int) -> tuple[Array, Ints]:
        """Return the first `size` totals, rounded once: floats, and powers of two to multiply by."""
        digits, negative = self._digits(size)
        slots, count = np.arange(size), digits.shape[0]
        lead = count - 1 - np.argmax(digits[::-1] != 0, axis=0)
        # Five digits have more bits than a float. What follows them only matters as being there or not, which
        # half a unit stands for: it is on the same side of every number that lies between two floats.
        upper = ((digits[lead, slots] << _BITS) + digits[lead - 1, slots] << _BITS) + digits[lead - 2, slots]
        lower = (digits[lead - 3, slots] << _BITS) + digits[lead - 4, slots]
        below = np.arange(count)[:, None] < lead - 4
        rest = ((digits != 0) & below).any(axis=0)
        values = upper * 2.0**_LOW_BITS + (lower + 0.5 * rest)
        return np.where(negative, -values, values), (self._first - 4 + lead - 4) * _BITS

    def save(self, size: int) -> dict[str, Any]:
        """Return the first `size` totals for a snapshot."""
        limbs, width = self._limbs[:size].reshape(-1), self._limbs.shape[1]
        return {"first": self._first, "width": width, "limbs": limbs, "added": self._added}

    def load(self, state: dict[str, Any], size: int, capacity: int) -> None:
        """Restore totals from a snapshot."""
        self._first, self._added = state["first"], state["added"]
        self._limbs = np.zeros((capacity, state["width"]), dtype=np.int64)
        self._limbs[:size] = np.reshape(state["limbs"], (size, state["width"]))

    def _digits(self, size: int) -> tuple[Ints, np.ndarray]:
        """Return the digits of the absolute totals, lowest first, after four zeros; and their signs."""
        width = self._limbs.shape[1]
        digits = np.zeros((4 + width + 5, size), dtype=np.int64)
        digits[4 : 4 + width] = self._limbs[:size].T
        _carry(digits[4:])
        negative = digits[-1] < 0
        if negative.any():
            digits[:, negative] *= -1
            _carry(digits[4:])
        return digits, negative

    def _reserve(self, first: int, end: int, additions: int) -> None:
        """Provide the limbs from `first` up to `end`, with space for so many additions to each."""
        if self._added + additions > _HEADROOM:
            # Another five digits hold whatever a limb can hold.
            self._widen(self._first, self._first + self._limbs.shape[1] + 5)
            _carry(self._limbs.T)
            self._trim()
            self._added = 1
        self._added += additions
        self._widen(first, end)

    def _widen(self, first: int, end: int) -> None:
        width = self._limbs.shape[1]
        if not width:
            self._first = first
        elif first >= self._first and end <= self._first + width:
            return
        else:
            first, end = min(first, self._first), max(end, self._first + width)
        wider = np.zeros((len(self._limbs), end - first), dtype=np.int64)
        wider[:, self._first - first : self._first - first + width] = self._limbs
        self._first, self._limbs = first, wider

    def _trim(self) -> None:
        """Drop the highest limbs if they only repeat the sign."""
        limbs = self._limbs
        while limbs.shape[1] > 1 and not limbs[:, -1].any():
            limbs = limbs[:, :-1]
        self._limbs = np.ascontiguousarray(limbs)


def _carry(digits: Ints) -> None:
    """Move what exceeds a digit to the next row; the last row keeps the sign."""
    for row in range(len(digits) - 1):
        digits[row + 1] += digits[row] >> _BITS
        digits[row] &= _DIGIT
