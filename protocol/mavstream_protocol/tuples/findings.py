"""Errors in a frame of tuples, collected by column and reported in row order."""

from __future__ import annotations

from heapq import nsmallest

from mavstream_protocol.errors import InvalidTuples, ProblemItem

MOST_TOLD = 10
"""The most errors that are reported for a frame."""

WHOLE_COLUMN = -1
"""The row number of a finding that concerns a whole column: sorted before those of single rows."""


class Findings:
    """Collects errors from columns in any order and raises them in row order."""

    def __init__(self) -> None:
        self._found: list[tuple[int, int, ProblemItem]] = []

    def in_row(self, row: int, name: str, code: str, detail: str) -> None:
        """Add an invalid value of the field `name` in a row, counted from 0."""
        self._add(row, f"rows/{row}/{name}", code, detail)

    def in_column(self, name: str, code: str, detail: str) -> None:
        """Add an error that concerns a whole column."""
        self._add(WHOLE_COLUMN, f"columns/{name}", code, detail)

    def of_row(self, row: int, code: str, detail: str) -> None:
        """Add an error that concerns a whole row."""
        self._add(row, f"rows/{row}", code, detail)

    def raise_if_any(self) -> None:
        """Raise InvalidTuples with the first findings by row, if there are findings."""
        if self._found:
            raise InvalidTuples(
                [item for *_, item in nsmallest(MOST_TOLD, self._found, key=lambda one: one[:2])]
            )

    def __len__(self) -> int:
        return len(self._found)

    def _add(self, row: int, pointer: str, code: str, detail: str) -> None:
        # The running number preserves the order in which the fields of one row were checked.
        self._found.append((row, len(self._found), ProblemItem(pointer=pointer, code=code, detail=detail)))


def refuse_body(code: str, detail: str) -> InvalidTuples:
    """Return the error for a frame that cannot be read at all."""
    return InvalidTuples([ProblemItem(pointer="body", code=code, detail=detail)])
