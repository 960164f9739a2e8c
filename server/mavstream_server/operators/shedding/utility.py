"""Utility: chooses the rows of least utility to shed, without looking ahead.

A row is compared with the rows of the previous block: it is shed if its utility is below the quantile of the
previous block's utilities that matches the quota. Rows with exactly that utility are drawn by position. If
utilities fall from one block to the next, nearly all rows would be shed: the quota of a block limits that. If
they rise, hardly any would be: where fewer than half of the wanted rows were found in a block, the next one
sheds the shortfall at random.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from mavstream_protocol.expressions.typed import Expression, references
from mavstream_server.columns.column import Column, Ints
from mavstream_server.expressions import RowErrors, compile_expression

_Floats: TypeAlias = npt.NDArray[np.float64]
_Words: TypeAlias = npt.NDArray[np.uint64]
_NO_VALUES: _Floats = np.empty(0, dtype=np.float64)


class LeastUtility:
    """Sheds the rows for which an expression is lowest; nulls and failed evaluations count as lowest.

    The decision is a function of the rows that it has seen, in order, and of the quota at each of them; it
    does not depend on how rows are divided into batches.
    """

    def __init__(self, utility: Expression, block: int) -> None:
        """`block` is the number of positions in a block."""
        self._evaluate = compile_expression(utility)
        self._size = block
        self.columns = tuple(dict.fromkeys(references(utility)))
        """The columns that the expression reads; needed only while rows are shed."""
        self._block = -1
        self._values: list[_Floats] = []  # utilities of the rows of this block
        self._before: _Floats = _NO_VALUES  # utilities of the rows of the previous block, sorted
        self._dropped = 0  # rows of this block that were shed
        self._found = 0  # rows of this block whose utility was low enough
        self._at_random = 0.0  # share of this block that is shed regardless of utility
        self._quota = 0
        self._bounds = (-np.inf, 0.0)

    def kept(self, block: int, columns: Mapping[str, Column], numbers: _Words, quota: int) -> Ints:
        """Return the indexes of the given rows, all of one block, that are not shed.

        `numbers` are hashes of the positions: they decide between rows of equal utility.
        """
        if block != self._block:
            self._enter(block)
            self._quota = -1
        if quota != self._quota:
            self._quota, self._bounds = quota, self._bounds_for(quota)
        values = self._utilities(columns, len(numbers))
        self._values.append(values)
        least, ties = self._bounds
        low = (values < least) | ((values == least) & (numbers < _share_of_numbers(ties)))
        self._found += int(np.count_nonzero(low))
        at_random = self._at_random if len(self._before) else quota / self._size
        chosen = np.flatnonzero(low | (numbers < _share_of_numbers(at_random)) if at_random else low)
        chosen = chosen[: max(quota - self._dropped, 0)]
        self._dropped += len(chosen)
        remains = np.ones(len(values), dtype=np.bool_)
        remains[chosen] = False
        kept: Ints = np.flatnonzero(remains)
        return kept

    def _enter(self, block: int) -> None:
        """Move to another block; statistics of a block are only used for the block right after it."""
        seen = np.concatenate([_NO_VALUES, *self._values])
        wanted = len(seen) * max(self._quota, 0) // self._size
        self._at_random = 0.0
        if block != self._block + 1:
            seen = _NO_VALUES
        elif len(self._before) and self._found < wanted / 2:
            self._at_random = (wanted - self._found) / len(seen)
        self._before = np.sort(seen)
        self._block, self._values, self._dropped, self._found = block, [], 0, 0

    def _bounds_for(self, quota: int) -> tuple[float, float]:
        """Return the utility below which rows are shed, and the share of rows with that utility to shed."""
        before = self._before
        if not len(before):
            return -np.inf, 0.0
        wanted = len(before) * quota // self._size
        least = before[min(wanted, len(before) - 1)]
        below, through = np.searchsorted(before, least, "left"), np.searchsorted(before, least, "right")
        return float(least), float((wanted - below) / (through - below))

    def _utilities(self, columns: Mapping[str, Column], size: int) -> _Floats:
        column = self._evaluate(columns, size, RowErrors())
        values: _Floats = column.values.astype(np.float64)
        nothing = np.isnan(values)
        if column.valid is not None:
            nothing |= ~column.valid
        values[nothing] = -np.inf
        return values

    def save(self) -> dict[str, Any]:
        """Return the utilities and counts of the last two blocks."""
        return {
            "block": self._block,
            "values": np.concatenate([_NO_VALUES, *self._values]),
            "before": self._before,
            "dropped": self._dropped,
            "found": self._found,
            "at_random": self._at_random,
            "quota": self._quota,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restore the state from a snapshot."""
        self._block, self._values, self._before = state["block"], [state["values"]], state["before"]
        self._dropped, self._found = state["dropped"], state["found"]
        self._at_random, self._quota = state["at_random"], state["quota"]
        self._bounds = self._bounds_for(max(self._quota, 0))


def _share_of_numbers(share: float) -> np.uint64:
    """Return the 64-bit number below which a share of all numbers lies."""
    return np.uint64(min(int(share * (1 << 64)), (1 << 64) - 1))
