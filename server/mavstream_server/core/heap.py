"""The garbage collector of a process with many long-lived objects: full collections skip what stays.

A full collection looks at every object that is not frozen, which takes tens of ms with some hundred queries.
Objects that stay are therefore frozen: those that exist after the start, and those of queries once many were
added.
"""

from __future__ import annotations

import gc

_SECOND = 1_000_000_000
_ADDED = 50
"""Queries to be added before their objects are frozen: a few do not make collections long."""
_REMOVED = 1000
"""Queries to be removed before frozen objects are collected, too: frozen garbage would stay for ever."""


def freeze_heap() -> None:
    """Collect garbage, then freeze what is left: for the end of a start."""
    gc.collect()
    gc.freeze()


class QueryHeap:
    """Freezes the objects of queries a second after the last of many was added."""

    def __init__(self) -> None:
        self._queries = self._added = self._removed = 0
        self._changed = 0

    def tend(self, queries: int, now: int) -> None:
        """Freeze or collect if it is due; `queries` is their number, `now` is a monotonic time in ns.

        To be called often, also while nothing happens.
        """
        if queries != self._queries:
            self._added += max(queries - self._queries, 0)
            self._removed += max(self._queries - queries, 0)
            self._queries, self._changed = queries, now
        elif (self._added >= _ADDED or self._removed >= _REMOVED) and now - self._changed >= _SECOND:
            self._freeze()

    def _freeze(self) -> None:
        if self._removed >= _REMOVED:
            self._removed = 0
            gc.unfreeze()
            freeze_heap()
        else:
            gc.collect(1)  # what was dropped lately; takes a millisecond
            gc.freeze()
        self._added = 0
