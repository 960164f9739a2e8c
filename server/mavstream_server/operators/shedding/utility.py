"""Worth: chooses the rows that are worth least, without waiting for those to come.

A row is compared with the rows of the block before: it goes if it is worth less than the share of them that
is to go. Rows that are worth as much as the last to go are drawn by position. If the worth falls from one
block to the next, nearly all rows would go: the quota of a block ends that. If it rises, hardly any would:
where fewer than half of those wanted were found in a block, the next one loses the rest at random.
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
    """Leaves out rows by what an expression says of them; null, and what cannot be computed, is worth least.

    What it decides is a function of the rows at the positions that it was shown, in order, and of the quota
    in force at each: not of how they were cut into batches.
    """

    def __init__(self, worth: Expression, block: int) -> None:
        """`block` is how many positions a block has."""
        self._evaluate = compile_expression(worth)
        self._size = block
        self.columns = tuple(dict.fromkeys(references(worth)))
        """What must be known of a row; nobody needs it while nothing is shed."""
        self._block = -1
        self._values: list[_Floats] = []  # of this block,
        self._before: _Floats = _NO_VALUES  # and of the one before, sorted
        self._dropped = 0  # of this block,
        self._found = 0  # and how many were worth little enough
        self._at_random = 0.0  # share of this block that goes whatever it is worth
        self._quota = 0
        self._bounds = (-np.inf, 0.0)

    def kept(self, block: int, columns: Mapping[str, Column], numbers: _Words, quota: int) -> Ints:
        """Return which rows of one block stay, by their place among those given.

        `numbers` are drawn from the positions, and decide where worth does not.
        """
        if block != self._block:
            self._enter(block)
            self._quota = -1
        if quota != self._quota:
            self._quota, self._bounds = quota, self._bounds_for(quota)
        values = self._worths(columns, len(numbers))
        self._values.append(values)
        least, ties = self._bounds
        low = (values < least) | ((values == least) & (numbers < _part(ties)))
        self._found += int(np.count_nonzero(low))
        at_random = self._at_random if len(self._before) else quota / self._size
        chosen = np.flatnonzero(low | (numbers < _part(at_random)) if at_random else low)
        chosen = chosen[: max(quota - self._dropped, 0)]
        self._dropped += len(chosen)
        stays = np.ones(len(values), dtype=np.bool_)
        stays[chosen] = False
        kept: Ints = np.flatnonzero(stays)
        return kept

    def _enter(self, block: int) -> None:
        """Go on to another block; what is known of an older one than the last says nothing any more."""
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
        """Return below which worth rows go, and which share goes of those that are worth just that."""
        before = self._before
        if not len(before):
            return -np.inf, 0.0
        goes = len(before) * quota // self._size
        least = before[min(goes, len(before) - 1)]
        below, through = np.searchsorted(before, least, "left"), np.searchsorted(before, least, "right")
        return float(least), float((goes - below) / (through - below))

    def _worths(self, columns: Mapping[str, Column], size: int) -> _Floats:
        column = self._evaluate(columns, size, RowErrors())
        values: _Floats = column.values.astype(np.float64)
        nothing = np.isnan(values)
        if column.valid is not None:
            nothing |= ~column.valid
        values[nothing] = -np.inf
        return values

    def save(self) -> dict[str, Any]:
        """Return what is known of the last two blocks."""
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
        """Take over what another one knew."""
        self._block, self._values, self._before = state["block"], [state["values"]], state["before"]
        self._dropped, self._found = state["dropped"], state["found"]
        self._at_random, self._quota = state["at_random"], state["quota"]
        self._bounds = self._bounds_for(max(self._quota, 0))


def _part(share: float) -> np.uint64:
    """Return the number below which a share of all numbers lies."""
    return np.uint64(min(int(share * (1 << 64)), (1 << 64) - 1))
