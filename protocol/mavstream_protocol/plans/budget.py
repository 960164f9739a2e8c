"""Budget of a plan: limits on the work of planning it as a whole, besides the limits of each node."""

from __future__ import annotations

from mavstream_protocol.errors import InvalidPlan, ProblemItem

MAX_BYTES = 1 << 20
"""The longest JSON text of a plan that a server reads."""
MAX_PARTS = 16_384
"""The most parts of all expressions: columns, constants, operators and calls."""
MAX_COLUMNS = 4096
"""The most columns that the nodes compute; nodes that hand on the columns of their input count none."""
MAX_PROBLEMS = 20
"""The most errors that are reported at once; planning stops there."""


class PlanBudget:
    """Counts the work of planning one plan, and stops it where a limit is exceeded."""

    def __init__(self) -> None:
        self._parts = 0
        self._columns = 0

    def spend_parts(self, count: int) -> None:
        """Count the parts of an expression; raises InvalidPlan."""
        self._parts += count
        if self._parts > MAX_PARTS:
            raise _too_large(
                "its expressions may have at most",
                MAX_PARTS,
                "parts (names, constants, operators)",
                self._parts,
            )

    def spend_columns(self, count: int) -> None:
        """Count the columns that a node computes; raises InvalidPlan."""
        self._columns += count
        check_columns(self._columns)


def check_columns(count: int) -> None:
    """Refuse a plan whose nodes compute too many columns; raises InvalidPlan."""
    if count > MAX_COLUMNS:
        raise _too_large("its nodes may compute at most", MAX_COLUMNS, "columns all together", count)


def check_bytes(size: int, pointer: str = "plan") -> None:
    """Refuse a plan whose JSON text is too long; raises InvalidPlan."""
    if size > MAX_BYTES:
        raise _too_large("its JSON text may have at most", MAX_BYTES, "bytes", size, pointer)


def _too_large(limit: str, most: int, unit: str, got: int, pointer: str = "plan") -> InvalidPlan:
    detail = (
        f"the plan is too large: {limit} {most:,} {unit}, got {got:,} or more; "
        "compute fewer columns, or split it into several queries"
    )
    return InvalidPlan([ProblemItem(pointer=pointer, code="plan_too_large", detail=detail)])
