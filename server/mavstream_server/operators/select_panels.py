"""Panels of selects: whether any of a few rows can pass them, for many selects at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from mavstream_server.columns.column import Column, Ints, Mask
from mavstream_server.expressions.requirements import RequirementTable
from mavstream_server.operators.select import Select


class _Panel(NamedTuple):
    """Selects that differ in constants only, as far as their requirements say."""

    table: RequirementTable
    row: Ints
    """The row of each select in the table; -1 for selects of other panels."""


class SelectPanels:
    """Selects over the same stream, some of which may be missing, in panels of those with the same forms."""

    def __init__(self, selects: Sequence[Select | None]) -> None:
        required = [() if select is None else select.requirements for select in selects]
        found: dict[tuple[object, ...], list[int]] = {}
        for index, several in enumerate(required):
            if several:
                found.setdefault(tuple(each.form for each in several), []).append(index)
        self._panels: list[_Panel] = []
        for indexes in found.values():
            rows: Ints = np.full(len(selects), -1, dtype=np.int64)
            rows[indexes] = np.arange(len(indexes))
            self._panels.append(_Panel(RequirementTable([required[i] for i in indexes]), rows))
        self._columns = tuple({column for panel in self._panels for column in panel.table.columns})

    def may_pass(self, indexes: Ints, columns: Callable[[Sequence[str]], dict[str, Column]]) -> Mask:
        """Return for the selects with these indexes whether any of the rows may pass them.

        `columns` returns columns of the rows by their names.
        """
        passing: Mask = np.ones(len(indexes), dtype=np.bool_)
        given = columns(self._columns)
        for panel in self._panels:
            rows = panel.row.take(indexes)
            known = rows >= 0
            passing[known] = panel.table.may_pass(given).take(rows[known])
        return passing
