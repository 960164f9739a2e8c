"""Screens: pass over new rows for all sources at once whose query would drop each of them.

With thousands of queries that ask for a few rows each, most turns of a query would find that none of the
new rows passes its select. A screen compares these rows with the constants of all selects in a few calls, and
moves the cursors of the queries that pass none of them. All others get a turn as usual.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mavstream_server.engine.sources.source_task import SourceTask
from mavstream_server.engine.task import Task
from mavstream_server.log.errors import LogError
from mavstream_server.log.reader import LogReader
from mavstream_server.operators.select import Select
from mavstream_server.operators.select_panels import SelectPanels
from mavstream_server.operators.source import mark_behind

_LEAST = 4
"""Sources at one place of the log from which on they are screened: fewer cost less one by one."""
_MOST_ROWS = 256
"""Rows up to which sources are screened: a turn with more rows costs little per row."""
_LONGEST_REST = 64
"""Looks for which a screen rests at most, after screenings that passed over few sources."""
_COST = 4
"""While the engine is busy, a screen rests this many times as long as screening has taken."""


class Screen:
    """The screen of one stream."""

    def __init__(self, reader: LogReader, monotonic: Callable[[], int]) -> None:
        self._reader = reader
        self._monotonic = monotonic
        self._selects: list[Task | None] = []
        self._panels = SelectPanels(())
        self._rest = self._rests = 0
        self.due = 0
        """When it may screen again although the engine is busy (ns)."""

    def sift(self, sources: list[SourceTask], now: int) -> list[SourceTask]:
        """Pass over the new rows where possible; returns the sources that are to read them, in order."""
        if len(sources) < _LEAST:
            return sources
        if self._rests:
            self._rests -= 1
            return sources
        begin = self._monotonic()
        selects = [task.select for task in sources]
        if selects != self._selects:
            self._selects, self._panels = selects, SelectPanels([_select(task) for task in selects])
        standing: dict[int, list[int]] = {}
        for index, task in enumerate(sources):
            place = task.place
            if place is not None:
                standing.setdefault(place, []).append(index)
        screened, passed = 0, set[int]()
        for indexes in standing.values():
            if len(indexes) >= _LEAST and sources[indexes[0]].work.behind:
                screened += len(indexes)
                passed.update(self._pass_over(sources, indexes))
        # As long as most sources have to read the rows, screening is of little use.
        self._rest = 0 if 2 * len(passed) >= screened else min(2 * self._rest + 1, _LONGEST_REST)
        self._rests = self._rest
        if not passed:
            return sources
        self.due = now + _COST * (self._monotonic() - begin)
        return [task for index, task in enumerate(sources) if index not in passed]

    def _pass_over(self, sources: Sequence[SourceTask], indexes: list[int]) -> list[int]:
        """Pass over what follows for sources at one place; returns the indexes of those that did."""
        first = sources[indexes[0]]
        cursor = self._reader.cursor(first.work.cursor.position)
        cursor.restore(first.work.cursor.state)
        if cursor.unread_rows > _MOST_ROWS:
            return []
        try:
            batch = self._reader.shared.take(cursor, first.train)
        except LogError:
            return []  # whoever reads there finds out why
        if not batch.spans:
            return []
        mark = mark_behind(batch.spans)
        # Sources that pass over rows are not woken, so there must be nothing behind these rows.
        if mark.end or cursor.place is None or cursor.behind:
            return []
        passed = indexes
        if batch.rows:
            may_pass = self._panels.may_pass(np.array(indexes), batch.columns).tolist()
            passed = [index for index, may in zip(indexes, may_pass, strict=True) if not may]
        after, rows = cursor.state, batch.rows
        last, _, stop = batch.spans[-1]
        read_to = last.arrival_of(stop - 1) if stop else last.arrival
        for index in passed:
            sources[index].skip(rows, after, mark, read_to)
        return passed


def _select(task: Task | None) -> Select | None:
    return task.work if task is not None and isinstance(task.work, Select) else None
