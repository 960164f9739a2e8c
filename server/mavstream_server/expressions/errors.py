"""Row errors: overflow, domain and cast errors, collected while a batch is evaluated."""

from __future__ import annotations

import numpy as np

from mavstream_server.columns.column import Column, Mask, both_valid


class RowErrors:
    """The rows of one batch whose evaluation failed; free of cost while there are none.

    Several expressions over the same rows may share one: a row counts once.
    """

    __slots__ = ("_failed", "first")

    def __init__(self) -> None:
        self._failed: Mask | None = None
        self.first: str | None = None
        """The message of the first error, or None."""

    @property
    def count(self) -> int:
        """How many rows failed."""
        return 0 if self._failed is None else int(np.count_nonzero(self._failed))

    def mask(self, size: int) -> Mask:
        """Return which of `size` rows failed; read-only."""
        return np.zeros(size, dtype=np.bool_) if self._failed is None else self._failed

    def add(self, failed: Mask, message: str) -> None:
        """Add rows that failed; the mask covers all rows of the batch and must not be modified afterwards."""
        if not failed.any():
            return
        self._failed = failed if self._failed is None else self._failed | failed
        self.first = self.first or message

    def add_from(self, inner: RowErrors, where: Mask | None = None) -> None:
        """Add the failed rows of a subexpression, restricted to a mask if one is given."""
        if inner._failed is not None and inner.first is not None:
            self.add(inner._failed if where is None else inner._failed & where, inner.first)


class FloatFlags:
    """Records that a floating-point operation overflowed, divided by zero or was invalid.

    numpy checks the processor's flags after every operation anyway and calls this if one is set, so results
    need no further check while none is.
    """

    __slots__ = ("raised",)

    def __init__(self) -> None:
        self.raised = False

    def __call__(self, kind: str, flag: int) -> None:
        """Record a flag; called by numpy."""
        self.raised = True


def without(column: Column, failed: Mask) -> Column:
    """Return the column with null in the failed rows."""
    return Column(column.values, both_valid(column.valid, ~failed), column.dictionary)
