"""Pane buffers: the rows of one input that wait for their windows to close."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any

import numpy as np

from mavstream_server.columns.batch import BEGIN_OF_TIME, Batch, concatenate_batches
from mavstream_server.columns.column import Ints
from mavstream_server.operators.windows.gate import Admitted
from mavstream_server.operators.windows.index import WindowIndex


class PaneBuffer:
    """Rows by pane, so that a window finds its rows without looking at those of others."""

    def __init__(self, windows: WindowIndex) -> None:
        self._windows = windows
        # Per pane: rows, and the first window that they count for (later than the pane's for stragglers).
        self._panes: dict[int, list[tuple[int, Batch]]] = {}
        self._order: list[int] = []
        self.nbytes = 0

    @property
    def lowest(self) -> int | None:
        """The first pane that has rows."""
        return self._order[0] if self._order else None

    @property
    def highest(self) -> int | None:
        """The last pane that has rows."""
        return max(self._panes) if self._panes else None

    @property
    def earliest(self) -> int | None:
        """The lowest time of all rows."""
        times = [batch.time for parts in self._panes.values() for _, batch in parts]
        return min((int(time.min()) for time in times if time is not None), default=None)

    def add(self, rows: Batch, admitted: Admitted) -> None:
        """Keep rows; they are those that `admitted` speaks of."""
        panes, firsts = admitted.panes, admitted.firsts
        if firsts is None:
            firsts = np.full(len(panes), BEGIN_OF_TIME)
        if (panes == panes[0]).all() and (firsts == firsts[0]).all():
            self._keep(int(panes[0]), int(firsts[0]), rows)
            return
        order = np.lexsort((firsts, panes))
        panes, firsts = panes.take(order), firsts.take(order)
        bounds = np.flatnonzero((np.diff(panes) != 0) | (np.diff(firsts) != 0)) + 1
        for part in np.split(np.arange(len(order)), bounds):
            place = int(part[0])
            self._keep(int(panes[place]), int(firsts[place]), rows.take(order.take(part)))

    def _keep(self, pane: int, first: int, rows: Batch) -> None:
        parts = self._panes.get(pane)
        if parts is None:
            parts = self._panes[pane] = []
            heapq.heappush(self._order, pane)
        parts.append((first, rows))
        self.nbytes += rows.nbytes

    def rows(self, window: int) -> Batch | None:
        """Return the rows of a window in the order in which they came, or None."""
        first = self._windows.first_pane(window)
        within = range(first, first + self._windows.panes_per_window)
        panes: Iterable[int] = within
        if len(within) > len(self._panes):  # short panes, most of them empty
            panes = sorted(pane for pane in self._panes if pane in within)
        parts = [batch for pane in panes for since, batch in self._panes.get(pane, ()) if since <= window]
        return concatenate_batches(parts) if parts else None

    def rows_before(self, pane: int, unanswered: int, first_window: int) -> int:
        """Return how many rows of the panes before one have part in no answer.

        Windows before `unanswered` were answered, but for those before `first_window`.
        """
        return sum(
            batch.size
            for held, parts in self._panes.items()
            if held < pane
            for first, batch in parts
            if max(first, self._windows.first_of_pane(held), first_window) >= unanswered
        )

    def drop_before(self, pane: int) -> None:
        """Forget the rows of all panes before one."""
        while self._order and self._order[0] < pane:
            parts = self._panes.pop(heapq.heappop(self._order))
            self.nbytes -= sum(batch.nbytes for _, batch in parts)

    def save(self) -> list[dict[str, Any]]:
        """Return the rows for a snapshot."""
        return [
            {"pane": pane, "firsts": [first for first, _ in parts], "batches": [batch for _, batch in parts]}
            for pane, parts in self._panes.items()
        ]

    def load(self, state: list[dict[str, Any]]) -> None:
        """Take over the rows of a snapshot."""
        self.drop_before(1 << 63)
        for saved in state:
            for first, batch in zip(saved["firsts"], saved["batches"], strict=True):
                self._keep(saved["pane"], first, batch)


def rows_of(batch: Batch, rows: Ints | None) -> Batch:
    """Return the admitted rows of a batch."""
    return batch if rows is None else batch.take(rows)
