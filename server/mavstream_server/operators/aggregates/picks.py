"""Accumulators that pick a value: minimum, maximum, first and last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np

from mavstream_protocol.schema import FieldType
from mavstream_server.columns.column import Column, Ints
from mavstream_server.columns.keys import KeyCoder
from mavstream_server.columns.pieces import Steps, pieces
from mavstream_server.operators.aggregates.accumulator import Accumulator, Fields, Slots, valid_rows

_LAST_INT = (1 << 63) - 1


class _Extreme(Accumulator):
    """The smallest or largest number of each slot."""

    pick: ClassVar[np.ufunc]

    def update(self, slots: Slots, column: Column, ordinals: Ints | None) -> None:
        """Compare the values with the current extremes."""
        rows, values = valid_rows(slots, column)
        if values.dtype == np.bool_:
            values = values.astype(np.int64)
        seen, counts = self.arrays["seen"], None if column.valid is not None else slots.counts
        if counts is None:
            seen[rows] = True
        else:
            seen[: slots.size] |= counts > 0
        self.pick.at(self.arrays["value"], rows, values)

    def merge(self, slots: Ints, other: Self) -> None:
        """Compare the extremes of two states."""
        value, seen = self.arrays["value"], self.arrays["seen"]
        value[slots] = self.pick(value[slots], other.arrays["value"][: other.size])
        seen[slots] |= other.arrays["seen"][: other.size]

    def result(self) -> Column:
        """Return the values, null without rows."""
        seen = self.arrays["seen"][: self.size]
        return Column(self.arrays["value"][: self.size], None if seen.all() else seen)


class IntMinimum(_Extreme):
    """`min` of integers, timestamps and bools."""

    pick = np.minimum
    fields: ClassVar[Fields] = {"value": (np.int64, _LAST_INT), "seen": (np.bool_, False)}


class IntMaximum(_Extreme):
    """`max` of integers, timestamps and bools."""

    pick = np.maximum
    fields: ClassVar[Fields] = {"value": (np.int64, -_LAST_INT - 1), "seen": (np.bool_, False)}


class _FloatExtreme(_Extreme):
    """The smallest or largest float of each slot; zero has no sign, since 0.0 and -0.0 are equal."""

    def result(self) -> Column:
        """Return the values, null without rows."""
        column = super().result()
        return Column(column.values + 0.0, column.valid)


class FloatMinimum(_FloatExtreme):
    """`min` of floats."""

    pick = np.minimum
    fields: ClassVar[Fields] = {"value": (np.float64, np.inf), "seen": (np.bool_, False)}


class FloatMaximum(_FloatExtreme):
    """`max` of floats."""

    pick = np.maximum
    fields: ClassVar[Fields] = {"value": (np.float64, -np.inf), "seen": (np.bool_, False)}


class CodedExtreme(Accumulator):
    """The smallest or largest text of each slot, stored as a code of the call's coder; 0 is none.

    Texts are compared in Python, once per distinct pair of slot and code in a batch.
    """

    fields: ClassVar[Fields] = {"code": (np.int64, 0)}

    def __init__(self, coder: KeyCoder, better: Callable[[str, str], bool]) -> None:
        super().__init__()
        self._coder = coder
        self._better = better

    def update(self, slots: Slots, column: Column, ordinals: Ints | None) -> None:
        """Compare the texts of the rows with the current extremes."""
        rows = np.flatnonzero(column.values)
        pairs = np.unique((slots.rows.take(rows) << 32) | column.values.take(rows))
        self._compare(pairs >> 32, pairs & 0xFFFFFFFF)

    def merge(self, slots: Ints, other: Self) -> None:
        """Compare the texts of two states."""
        self._compare(slots, other.arrays["code"][: other.size])

    def _compare(self, slots: Ints, codes: Ints) -> None:
        texts = self._coder.columns(codes)[0].to_list(FieldType.STRING)
        held = self.arrays["code"]
        held_texts = self._coder.columns(held.take(slots))[0].to_list(FieldType.STRING)
        best: dict[int, tuple[str, int]] = {}
        for slot, code, text, old in zip(slots.tolist(), codes.tolist(), texts, held_texts, strict=True):
            if text is None:
                continue
            rival = best[slot][0] if slot in best else old
            if rival is None or self._better(text, rival):
                best[slot] = (text, code)
        for slot, (_, code) in best.items():
            held[slot] = code

    def result(self) -> Column:
        """Return the texts, null without rows."""
        return self._coder.columns(self.arrays["code"][: self.size])[0]

    def held_codes(self) -> Ints | None:
        """Return the codes of the texts."""
        return self.arrays["code"][: self.size]

    def recode(self, mapping: Ints) -> Steps[None]:
        """Replace the codes."""
        yield from _recode(self.arrays["code"], self.size, mapping)


class Edge(Accumulator):
    """`first` or `last` in stream order, null rows included; strings are stored as codes.

    The numbers of rows are stored with the values: panes are merged by time, which may differ from stream
    order.
    """

    fields: ClassVar[Fields] = {"value": (np.int64, 0), "valid": (np.bool_, False), "ordinal": (np.int64, -1)}

    def __init__(self, last: bool, coder: KeyCoder | None = None) -> None:
        super().__init__()
        self._last = last
        self._coder = coder

    def update(self, slots: Slots, column: Column, ordinals: Ints | None) -> None:
        """Write the rows in an order in which the row that counts is written last."""
        assert ordinals is not None
        if self._last:
            rows: Any = slice(None)
        else:
            rows = np.flatnonzero(self.arrays["ordinal"].take(slots.rows) < 0)[::-1]
        owners = slots.rows[rows]
        self.arrays["value"][owners] = column.values[rows]
        self.arrays["valid"][owners] = True if column.valid is None else column.valid[rows]
        self.arrays["ordinal"][owners] = ordinals[rows]

    def merge(self, slots: Ints, other: Self) -> None:
        """Take the row that is first, or last, of two states."""
        ours, theirs = self.arrays["ordinal"].take(slots), other.arrays["ordinal"][: other.size]
        wins = theirs > ours if self._last else (theirs >= 0) & ((ours < 0) | (theirs < ours))
        rows = np.flatnonzero(wins)
        for name, array in self.arrays.items():
            array[slots.take(rows)] = other.arrays[name].take(rows)

    def result(self) -> Column:
        """Return the values."""
        values, valid = self.arrays["value"][: self.size], self.arrays["valid"][: self.size]
        if self._coder is not None:
            return self._coder.columns(values)[0]
        return Column(values, None if valid.all() else valid)

    def held_codes(self) -> Ints | None:
        """Return the codes of strings."""
        return None if self._coder is None else self.arrays["value"][: self.size]

    def recode(self, mapping: Ints) -> Steps[None]:
        """Replace the codes of strings."""
        yield from _recode(self.arrays["value"], self.size, mapping)


class FloatEdge(Edge):
    """`first` or `last` of floats."""

    fields: ClassVar[Fields] = {**Edge.fields, "value": (np.float64, 0.0)}


def _recode(codes: Ints, size: int, mapping: Ints) -> Steps[None]:
    for piece in pieces(size):
        codes[piece] = mapping.take(codes[piece])
        yield
