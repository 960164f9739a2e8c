"""Groups: accumulators by (pane, key), and by key alone once a pane is complete."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from mavstream_server.columns.column import Column, Ints
from mavstream_server.columns.index import IntIndex
from mavstream_server.operators.aggregates.accumulator import Accumulator, Slots
from mavstream_server.operators.windows.panes import Panes

_CODE_BITS = 31  # of a cell, for any key's code

MakeAccumulators = Callable[[], list[Accumulator]]


class Groups:
    """A set of keys, each with one slot in every accumulator."""

    __slots__ = ("accumulators", "codes")

    def __init__(self, codes: Ints, accumulators: list[Accumulator]) -> None:
        self.codes = codes
        self.accumulators = accumulators

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        """Bytes of the codes and accumulators."""
        return self.codes.nbytes + sum(accumulator.nbytes for accumulator in self.accumulators)

    def copy(self) -> Groups:
        """Return a copy that can be merged into without changing the original."""
        return self.take(np.arange(len(self.codes)))

    def take(self, slots: Ints) -> Groups:
        """Return some of the groups."""
        return Groups(self.codes.take(slots), [a.take(slots) for a in self.accumulators])

    def parts(self, size: int) -> Iterator[Groups]:
        """Yield copies of each `size` consecutive groups."""
        each = [accumulator.parts(size) for accumulator in self.accumulators]
        for start in range(0, len(self), size):
            yield Groups(self.codes[start : start + size], [next(parts) for parts in each])

    def merge(self, other: Groups, code_count: int) -> None:
        """Merge another set into this one; new keys are appended."""
        if not len(other):
            return
        slot_of_code = np.full(code_count, -1, dtype=np.int64)
        slot_of_code[self.codes] = np.arange(len(self.codes))
        slots = slot_of_code.take(other.codes)
        new = np.flatnonzero(slots < 0)
        slots[new] = np.arange(len(self.codes), len(self.codes) + len(new))
        self.codes = np.concatenate([self.codes, other.codes.take(new)])
        for ours, theirs in zip(self.accumulators, other.accumulators, strict=True):
            ours.grow(len(self.codes))
            ours.merge(slots, theirs)

    def save(self) -> dict[str, Any]:
        """Return the state for a snapshot."""
        return {"codes": self.codes, "accumulators": [a.save() for a in self.accumulators]}

    @classmethod
    def restore(cls, state: dict[str, Any], make: MakeAccumulators) -> Groups:
        """Restore groups from a snapshot."""
        accumulators = make()
        for accumulator, saved in zip(accumulators, state["accumulators"], strict=True):
            accumulator.load(saved)
        return cls(state["codes"], accumulators)


class GroupTable:
    """Groups of several open panes (or windows), all in one set of arrays.

    A cell is a pane and a key packed into one integer, so that a batch that spans many panes needs no more
    calls than one inside a single pane. Slots are in the order in which their cells first appeared.
    """

    def __init__(self, make: MakeAccumulators) -> None:
        self._make = make
        self.accumulators = make()
        self._cells = IntIndex()
        self._bits = 10  # low bits of a cell, which hold the key's code
        self._numbers: dict[int, int] = {}  # pane -> its number in cells; numbers only grow
        self._panes: dict[int, int] = {}  # the reverse
        self._rows: dict[int, int] = {}  # pane -> rows that were folded into it
        self._next = 0
        self._order: list[int] = []  # heap of panes

    def __len__(self) -> int:
        return self._cells.count

    @property
    def lowest(self) -> int | None:
        """The first pane that has groups."""
        return self._order[0] if self._order else None

    @property
    def highest(self) -> int | None:
        """The last pane that has groups."""
        return max(self._numbers) if self._numbers else None

    @property
    def panes(self) -> int:
        """The number of panes that have groups."""
        return len(self._numbers)

    def rows_before(self, pane: int) -> int:
        """Return the number of rows that were folded into the panes before `pane`."""
        return sum(rows for held, rows in self._rows.items() if held < pane)

    @property
    def nbytes(self) -> int:
        """Bytes of the cells and accumulators."""
        return self._cells.nbytes + sum(a.nbytes for a in self.accumulators) if self._cells.count else 0

    def add(
        self,
        panes: Panes,
        codes: Ints,
        code_count: int,
        columns: Sequence[Column],
        ordinals: Ints | None,
    ) -> None:
        """Fold rows into the groups of their panes and keys."""
        if code_count > 1 << self._bits:
            # Sparse cells are hashed whatever their width: packing them again would only take time.
            self._repack(code_count.bit_length() + 1 if self._cells.dense else _CODE_BITS)
        cells = self._cells.encode(self._shifted(panes) + codes)
        size = self._cells.count
        slots = Slots(cells, size)
        for accumulator, column in zip(self.accumulators, columns, strict=True):
            if accumulator.size != size:
                accumulator.grow(size)
            accumulator.update(slots, column, ordinals)

    def pop(self, before: int) -> tuple[Ints, Groups] | None:
        """Remove and return the groups of all panes before `before`, by pane and then by first appearance."""
        if not self._order or self._order[0] >= before:
            return None
        panes, codes = self._unpacked()
        if len(self._numbers) == 1:  # all groups of a single pane: they need no sorting
            taken, self._cells = Groups(codes, self.accumulators), IntIndex()
            self.accumulators = self._make()
            self._forget_panes(before)
            return panes, taken
        done = np.flatnonzero(panes < before)
        done = done.take(np.argsort(panes.take(done), kind="stable"))
        rest = np.flatnonzero(panes >= before)
        taken = Groups(codes.take(done), [a.take(done) for a in self.accumulators])
        self.accumulators = [a.take(rest) for a in self.accumulators] if len(rest) else self._make()
        self._cells = IntIndex(self._cells.keys.take(rest))
        self._forget_panes(before)
        return panes.take(done), taken

    def _forget_panes(self, before: int) -> None:
        while self._order and self._order[0] < before:
            done_pane = heapq.heappop(self._order)
            del self._panes[self._numbers.pop(done_pane)], self._rows[done_pane]

    def slots_of(self, pane: int, codes: Ints) -> Ints:
        """Return the slots of keys in a pane; -1 where there are no rows."""
        number = self._numbers.get(pane)
        if number is None:
            return np.full(len(codes), -1, dtype=np.int64)
        return self._cells.find((number << self._bits) + codes)

    def live_codes(self) -> Ints:
        """Return the keys' codes of all groups."""
        return self._cells.keys & ((1 << self._bits) - 1)

    def recode(self, mapping: Ints) -> None:
        """Replace the keys' codes after their coder was compacted."""
        numbers = self._cells.keys >> self._bits
        self._cells = IntIndex((numbers << self._bits) | mapping.take(self.live_codes()))

    def save(self) -> dict[str, Any]:
        """Return the state for a snapshot."""
        panes, codes = self._unpacked()
        rows = [[pane, rows] for pane, rows in self._rows.items()]
        return {"panes": panes, "groups": Groups(codes, self.accumulators).save(), "rows": rows}

    def load(self, state: dict[str, Any]) -> None:
        """Restore the state from a snapshot."""
        groups = Groups.restore(state["groups"], self._make)
        self.accumulators = groups.accumulators
        if len(groups):
            self._bits = max(self._bits, int(groups.codes.max()).bit_length() + 1)
        self._cells = IntIndex(self._shifted(Panes.of(state["panes"])) + groups.codes)
        self._rows = dict(state["rows"])

    def _unpacked(self) -> tuple[Ints, Ints]:
        keys = self._cells.keys
        codes: Ints = keys & ((1 << self._bits) - 1)
        if not len(keys):
            return codes, codes
        first = min(self._panes)
        panes = np.array([self._panes.get(number, 0) for number in range(first, self._next)], dtype=np.int64)
        return panes.take((keys >> self._bits) - first), codes

    def _shifted(self, panes: Panes) -> Ints | int:
        """Return the high bits of each row's cell, which hold the pane, and count the rows of each pane."""
        size, low, counts = len(panes), panes.low, panes.counts
        if not size:
            return 0
        if low == panes.high:
            return self._number(low, size) << self._bits
        if counts is not None:
            return self._numbers_of(low, counts).repeat(counts)
        if panes.high - low < 4 * size:
            offsets = panes.numbers - low
            return self._numbers_of(low, np.bincount(offsets)).take(offsets)
        distinct, inverse, counts = np.unique(panes.numbers, return_inverse=True, return_counts=True)
        each = zip(distinct.tolist(), counts.tolist(), strict=True)
        numbers = np.array([self._number(pane, rows) for pane, rows in each], dtype=np.int64)
        return (numbers << self._bits).take(inverse)

    def _numbers_of(self, low: int, counts: Ints) -> Ints:
        """Return the high bits of the panes from `low` on that have rows, given how many rows each has."""
        numbers = [self._number(low + i, rows) if rows else 0 for i, rows in enumerate(counts.tolist())]
        return np.array(numbers, dtype=np.int64) << self._bits

    def _number(self, pane: int, rows: int) -> int:
        """Return the number of a pane in cells, and count rows that are added to it."""
        number = self._numbers.get(pane)
        if number is not None:
            self._rows[pane] += rows
        else:
            self._rows[pane] = rows
            number = self._numbers[pane] = self._next
            self._panes[number] = pane
            self._next += 1
            heapq.heappush(self._order, pane)
        return number

    def _repack(self, bits: int) -> None:
        keys, old = self._cells.keys, self._bits
        self._bits = bits
        self._cells = IntIndex(((keys >> old) << bits) | (keys & ((1 << old) - 1)))
