"""Groups: accumulators by (pane, key), and by key alone once a pane is complete."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from mavstream_server.columns.column import Column, Ints
from mavstream_server.columns.index import IntIndex
from mavstream_server.columns.keys import repacked
from mavstream_server.columns.pieces import Steps, finished, joined, one_after_other, ordered, pieces, taken
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

    def copying(self) -> Steps[Groups]:
        """Return a copy that can be merged into without changing the original, in steps."""
        return (yield from self.taking(np.arange(len(self.codes))))

    def taking(self, slots: Ints) -> Steps[Groups]:
        """Return some of the groups, in steps."""
        codes = yield from taken(self.codes, slots)
        return Groups(codes, (yield from one_after_other(a.taking(slots) for a in self.accumulators)))

    def answering(self, slots: Ints) -> Steps[Groups]:
        """Return some of the groups, in steps, that are only asked for their results."""
        codes = yield from taken(self.codes, slots)
        return Groups(codes, (yield from one_after_other(a.answering(slots) for a in self.accumulators)))

    def dividing(self, size: int) -> Steps[Iterator[Groups]]:
        """Prepare the results of all groups, in steps; returns each `size` consecutive groups."""
        each = yield from one_after_other(a.dividing(size) for a in self.accumulators)
        return (
            Groups(self.codes[start : start + size], [next(parts) for parts in each])
            for start in range(0, len(self), size)
        )

    def merging(self, other: Groups, code_count: int) -> Steps[None]:
        """Merge another set into this one, in steps; new keys are appended."""
        if not len(other):
            return
        count = len(self.codes)
        slot_of_code = np.zeros(code_count, dtype=np.int32)  # plus one
        for piece in pieces(count):
            slot_of_code[self.codes[piece]] = np.arange(piece.start + 1, piece.stop + 1)
            yield
        slots = np.empty(len(other), dtype=np.int64)
        added = []
        for piece in pieces(len(other)):
            codes = other.codes[piece]
            found = slot_of_code.take(codes).astype(np.int64) - 1
            new = np.flatnonzero(found < 0)
            found[new] = np.arange(count, count + len(new))
            count += len(new)
            slots[piece] = found
            added.append(codes.take(new))
            yield
        if count > len(self.codes):
            self.codes = yield from joined([self.codes, *added])
        for ours, theirs in zip(self.accumulators, other.accumulators, strict=True):
            yield from ours.reserve(count)
            ours.grow(count)
            yield from ours.merging(slots, theirs)

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

    def adding(
        self,
        panes: Panes,
        codes: Ints,
        code_count: int,
        columns: Sequence[Column],
        ordinals: Ints | None,
    ) -> Steps[None]:
        """Fold rows into the groups of their panes and keys, in steps."""
        if code_count > 1 << self._bits:
            # Sparse cells are hashed whatever their width: packing them again would only take time.
            yield from self._repack(code_count.bit_length() + 1 if self._cells.dense else _CODE_BITS)
        cells = yield from self._cells.encoding(self._shifted(panes) + codes)
        size = self._cells.count
        slots = Slots(cells, size)
        for accumulator, column in zip(self.accumulators, columns, strict=True):
            if accumulator.size != size:
                yield from accumulator.reserve(size)
                accumulator.grow(size)
            yield from accumulator.updating(slots, column, ordinals)

    def popping(self, before: int) -> Steps[tuple[Ints, Groups] | None]:
        """Remove and return the groups of all panes before `before`, by pane and then by first appearance.

        Works in steps; the table must not be used before the last one.
        """
        if not self._order or self._order[0] >= before:
            return None
        panes, codes = yield from self._unpacked()
        if len(self._numbers) == 1:  # all groups of a single pane: they need no sorting
            popped = Groups(codes, self.accumulators)
            self.accumulators, self._cells = self._make(), IntIndex()
            self._forget_panes(before)
            return panes, popped
        found, left = [], []
        for piece in pieces(len(panes)):
            closed = panes[piece] < before
            found.append(np.flatnonzero(closed) + piece.start)
            left.append(np.flatnonzero(~closed) + piece.start)
            yield
        done, rest = (yield from joined(found)), (yield from joined(left))
        done = yield from ordered(panes, done)
        popped = yield from Groups(codes, self.accumulators).taking(done)
        panes = yield from taken(panes, done)
        if len(rest):
            self.accumulators = (yield from Groups(codes, self.accumulators).taking(rest)).accumulators
        else:
            self.accumulators = self._make()
        self._cells = yield from IntIndex.of((yield from taken(self._cells.keys, rest)))
        self._forget_panes(before)
        return panes, popped

    def pop(self, before: int) -> tuple[Ints, Groups] | None:
        """Do the same at once."""
        return finished(self.popping(before))

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

    def recode(self, mapping: Ints) -> Steps[None]:
        """Replace the keys' codes after their coder was compacted, in steps."""
        keys, low = self._cells.keys, (1 << self._bits) - 1
        recoded = np.empty(len(keys), dtype=np.int64)
        for piece in pieces(len(keys)):
            recoded[piece] = (keys[piece] & ~low) | mapping.take(keys[piece] & low)
            yield
        self._cells = yield from IntIndex.of(recoded)

    def save(self) -> dict[str, Any]:
        """Return the state for a snapshot."""
        panes, codes = finished(self._unpacked())
        rows = [[pane, rows] for pane, rows in self._rows.items()]
        return {"panes": panes, "groups": Groups(codes, self.accumulators).save(), "rows": rows}

    def load(self, state: dict[str, Any]) -> None:
        """Restore the state from a snapshot."""
        groups = Groups.restore(state["groups"], self._make)
        self.accumulators = groups.accumulators
        if len(groups):
            self._bits = max(self._bits, int(groups.codes.max()).bit_length() + 1)
        self._cells = finished(IntIndex.of(self._shifted(Panes.of(state["panes"])) + groups.codes))
        self._rows = dict(state["rows"])

    def _unpacked(self) -> Steps[tuple[Ints, Ints]]:
        """Return the pane and the key's code of each group."""
        keys, low = self._cells.keys, (1 << self._bits) - 1
        panes, codes = np.empty(len(keys), dtype=np.int64), np.empty(len(keys), dtype=np.int64)
        if not len(keys):
            return panes, codes
        first = min(self._panes)
        numbers = np.array(
            [self._panes.get(number, 0) for number in range(first, self._next)], dtype=np.int64
        )
        for piece in pieces(len(keys)):
            codes[piece] = keys[piece] & low
            panes[piece] = numbers.take((keys[piece] >> self._bits) - first)
            yield
        return panes, codes

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

    def _repack(self, bits: int) -> Steps[None]:
        packed = np.empty(self._cells.count, dtype=np.int64)
        for piece in pieces(len(packed)):
            packed[piece] = repacked(self._cells.keys[piece], self._bits, bits)
            yield
        self._cells = yield from IntIndex.of(packed)
        self._bits = bits
