"""Sliding groups: merge the panes of overlapping windows into the groups of each window."""

from __future__ import annotations

from typing import Any

from mavstream_server.columns.pieces import Steps
from mavstream_server.operators.aggregates.groups import Groups, MakeAccumulators


class SlidingGroups:
    """Merges the panes of a sliding window, at an amortized cost per pane independent of the window's size.

    The two-stacks algorithm: `_front` holds, for each older pane, the merge of all panes from it up to the
    end of the front; `_back` holds the newer panes, and `_back_sum` their merge. A window is the top of the
    front merged with the sum of the back. When the front is empty, the back is moved to the front.
    """

    def __init__(self, make: MakeAccumulators) -> None:
        self._make = make
        self._front: list[tuple[int, Groups]] = []  # newest first, so that the oldest pane is on top
        self._back: list[tuple[int, Groups]] = []
        self._back_sum: Groups | None = None

    @property
    def oldest(self) -> int | None:
        """The first pane, or None."""
        if self._front:
            return self._front[-1][0]
        return self._back[0][0] if self._back else None

    @property
    def newest(self) -> int | None:
        """The last pane, or None."""
        if self._back:
            return self._back[-1][0]
        return self._front[0][0] if self._front else None

    @property
    def held(self) -> list[Groups]:
        """All groups in memory, including merged ones."""
        sums = [] if self._back_sum is None else [self._back_sum]
        return [groups for _, groups in self._front + self._back] + sums

    @property
    def nbytes(self) -> int:
        """Bytes of all groups."""
        return sum(groups.nbytes for groups in self.held)

    def pushing(self, pane: int, groups: Groups, code_count: int) -> Steps[None]:
        """Add the next pane, in steps; panes must be added in order."""
        if self._back_sum is None:
            self._back_sum = yield from groups.copying()
        else:
            yield from self._back_sum.merging(groups, code_count)
        self._back.append((pane, groups))

    def drop_before(self, pane: int, code_count: int) -> Steps[None]:
        """Drop the panes before `pane`, in steps: nothing else may be done before the last one."""
        while self._front and self._front[-1][0] < pane:
            self._front.pop()
        if not self._front and self._back and self._back[0][0] < pane:
            yield from self._move_back_to_front(pane, code_count)

    def _move_back_to_front(self, pane: int, code_count: int) -> Steps[None]:
        total: Groups | None = None
        for number, groups in reversed(self._back):
            if number < pane:
                break
            suffix = yield from groups.copying()
            if total is not None:
                yield from suffix.merging(total, code_count)
            total = suffix
            self._front.append((number, suffix))
        self._back, self._back_sum = [], None

    def total(self, code_count: int) -> Steps[Groups | None]:
        """Return the merged groups of all panes as a copy, in steps, or None if there are none."""
        if not self._front:
            return None if self._back_sum is None else (yield from self._back_sum.copying())
        total = yield from self._front[-1][1].copying()
        if self._back_sum is not None:
            yield from total.merging(self._back_sum, code_count)
        return total

    def save(self) -> dict[str, Any]:
        """Return the state for a snapshot."""
        return {
            "front": [[pane, groups.save()] for pane, groups in self._front],
            "back": [[pane, groups.save()] for pane, groups in self._back],
            "sum": None if self._back_sum is None else self._back_sum.save(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restore the state from a snapshot."""
        self._front = [(pane, Groups.restore(saved, self._make)) for pane, saved in state["front"]]
        self._back = [(pane, Groups.restore(saved, self._make)) for pane, saved in state["back"]]
        self._back_sum = None if state["sum"] is None else Groups.restore(state["sum"], self._make)
