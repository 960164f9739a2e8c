"""Pane buffers: store the rows of one input until their windows close."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any

import numpy as np

from mavstream_server.columns.batch import BEGIN_OF_TIME, Batch, concatenating
from mavstream_server.columns.column import Ints
from mavstream_server.columns.pieces import Steps
from mavstream_server.operators.windows.gate import Admitted
from mavstream_server.operators.windows.index import WindowIndex


class PaneBuffer:
    """Rows by pane, so that a window finds its rows without scanning those of others."""

    def __init__(self, windows: WindowIndex) -> None:
        self._windows = windows
        # Per pane: rows and the first window that they count for, which for rows that were late for some of
        # their windows is later than the first window of the pane.
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
        """The earliest time of all rows (us), or None."""
        times = [batch.time for batches in self._panes.values() for _, batch in batches]
        return min((int(time.min()) for time in times if time is not None), default=None)

    def add(self, rows: Batch, admitted: Admitted) -> None:
        """Store the rows that a gate admitted; `admitted` has their panes."""
        if admitted.firsts is None and admitted.panes.low == admitted.panes.high:
            self._store(admitted.panes.low, BEGIN_OF_TIME, rows)
            return
        panes, firsts = admitted.panes.numbers, admitted.firsts
        if firsts is None:
            firsts = np.full(len(panes), BEGIN_OF_TIME)
        if (panes == panes[0]).all() and (firsts == firsts[0]).all():
            self._store(int(panes[0]), int(firsts[0]), rows)
            return
        order = np.lexsort((firsts, panes))
        panes, firsts = panes.take(order), firsts.take(order)
        bounds = np.flatnonzero((np.diff(panes) != 0) | (np.diff(firsts) != 0)) + 1
        for run in np.split(np.arange(len(order)), bounds):
            start = int(run[0])
            self._store(int(panes[start]), int(firsts[start]), rows.take(order.take(run)))

    def _store(self, pane: int, first: int, rows: Batch) -> None:
        batches = self._panes.get(pane)
        if batches is None:
            batches = self._panes[pane] = []
            heapq.heappush(self._order, pane)
        batches.append((first, rows))
        self.nbytes += rows.nbytes

    def rows(self, window: int) -> Steps[Batch | None]:
        """Return the rows of a window, pane by pane, in steps, or None if it has none."""
        first = self._windows.first_pane(window)
        within = range(first, first + self._windows.panes_per_window)
        panes: Iterable[int] = within
        if len(within) > len(self._panes):  # short panes, most of them empty
            panes = sorted(pane for pane in self._panes if pane in within)
        batches = [batch for pane in panes for since, batch in self._panes.get(pane, ()) if since <= window]
        return (yield from concatenating(batches)) if batches else None

    def rows_before(self, pane: int, unanswered: int, first_window: int) -> int:
        """Return how many rows of the panes before `pane` take part in no answer.

        Windows before `unanswered` were answered, except for those before `first_window`.
        """
        return sum(
            batch.size
            for held, batches in self._panes.items()
            if held < pane
            for first, batch in batches
            if max(first, self._windows.first_of_pane(held), first_window) >= unanswered
        )

    def drop_before(self, pane: int) -> None:
        """Drop the rows of all panes before `pane`."""
        while self._order and self._order[0] < pane:
            batches = self._panes.pop(heapq.heappop(self._order))
            self.nbytes -= sum(batch.nbytes for _, batch in batches)

    def save(self) -> list[dict[str, Any]]:
        """Return the rows for a snapshot."""
        return [
            {
                "pane": pane,
                "firsts": [first for first, _ in batches],
                "batches": [batch for _, batch in batches],
            }
            for pane, batches in self._panes.items()
        ]

    def load(self, state: list[dict[str, Any]]) -> None:
        """Restore the rows from a snapshot."""
        self.drop_before(1 << 63)
        for saved in state:
            for first, batch in zip(saved["firsts"], saved["batches"], strict=True):
                self._store(saved["pane"], first, batch)


def rows_of(batch: Batch, rows: Ints | None) -> Batch:
    """Return the admitted rows of a batch."""
    return batch if rows is None else batch.take(rows)
