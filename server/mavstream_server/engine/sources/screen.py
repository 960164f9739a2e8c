"""Screens: pass over new rows for all sources at once whose query would drop each of them.

With thousands of queries that ask for a few rows each, most turns of a query would find that none of the new
rows passes its select. A screen compares these rows with the constants of all selects in a few calls, and moves
the cursors of the queries that pass none of them. All others get a turn as usual.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mavstream_protocol.schema import FieldType
from mavstream_server.columns.column import Ints
from mavstream_server.engine.sources.source_task import SourceTask
from mavstream_server.engine.task import Task
from mavstream_server.expressions.requirements import Requirement, RequirementTable
from mavstream_server.log.errors import LogError
from mavstream_server.log.reader import LogReader
from mavstream_server.operators.select import Select
from mavstream_server.operators.source import mark_behind

_LEAST = 4
"""Sources at one place of the log from which on they are screened: fewer cost less one by one."""
_MOST_ROWS = 256
"""Rows up to which sources are screened: a turn with more rows costs little per row."""
_LONGEST_REST = 64
"""Looks for which a screen rests at most, after screenings that passed over few sources."""
_COST = 4
"""While the engine is busy, screening takes at most one part in so many of the time."""


class _Panel(NamedTuple):
    """Selects whose requirements have the same forms."""

    table: RequirementTable
    row: Ints
    """The row of each source of the stream in the table; -1 for sources of other panels."""


class Screen:
    """The screen of one stream."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._selects: list[Task | None] = []
        self._panels: list[_Panel] = []
        self._columns: tuple[str, ...] = ()
        self._rest = self._rests = 0
        self.due = 0
        """When it may screen again although the engine is busy (ns)."""

    def sift(self, sources: list[SourceTask]) -> list[SourceTask]:
        """Pass over the new rows where possible; returns the sources that are to read them, in order."""
        if len(sources) < _LEAST:
            return sources
        if self._rests:
            self._rests -= 1
            return sources
        selects = [task.select for task in sources]
        if selects != self._selects:
            self._arrange(selects)
        standing: dict[int, list[int]] = {}
        for index, task in enumerate(sources):
            place = task.place
            if place is not None:
                standing.setdefault(place, []).append(index)
        done: set[int] = set()
        screened = 0
        for indexes in standing.values():
            if len(indexes) >= _LEAST and sources[indexes[0]].work.cursor.behind:
                screened += len(indexes)
                done.update(self._pass_over(sources, indexes))
        # As long as most sources have to read on, screening is of little use.
        self._rest = 0 if 2 * len(done) >= screened else min(2 * self._rest + 1, _LONGEST_REST)
        self._rests = self._rest
        return [task for index, task in enumerate(sources) if index not in done] if done else sources

    def spent(self, now: int, elapsed: int) -> None:
        """Note what screening took (ns)."""
        self.due = now + _COST * elapsed

    def _arrange(self, selects: list[Task | None]) -> None:
        """Collect the requirements of all selects, by their forms."""
        found: dict[tuple[tuple[str, str, FieldType], ...], list[int]] = {}
        required = [() if select is None else requirements_of(select) for select in selects]
        for index, several in enumerate(required):
            if several:
                found.setdefault(tuple(each.form for each in several), []).append(index)
        self._selects, self._panels = selects, []
        for indexes in found.values():
            table = RequirementTable([required[index] for index in indexes])
            rows: Ints = np.full(len(selects), -1, dtype=np.int64)
            rows[indexes] = np.arange(len(indexes))
            self._panels.append(_Panel(table, rows))
        self._columns = tuple({column for panel in self._panels for column in panel.table.columns})

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
        passing = np.zeros(len(indexes), dtype=bool)
        if batch.rows:
            columns, at = batch.columns(self._columns), np.array(indexes)
            passing[:] = True
            for panel in self._panels:
                rows = panel.row.take(at)
                screened = rows >= 0
                may = panel.table.may_pass(columns)
                passing[screened] = may.take(rows[screened])
        after, rows_read = cursor.state, batch.rows
        last, _, stop = batch.spans[-1]
        read_to = last.arrival_of(stop - 1) if stop else last.arrival
        gone = []
        for index, may_pass in zip(indexes, passing.tolist(), strict=True):
            if not may_pass:
                sources[index].skip(rows_read, after, mark, read_to)
                gone.append(index)
        return gone


def requirements_of(select: Task) -> tuple[Requirement, ...]:
    """Return what every row must meet to pass a select."""
    assert isinstance(select.work, Select)
    return select.work.requirements
