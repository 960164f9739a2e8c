"""Comparison of answers: multisets of rows, floats within a tolerance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.support.differential.cases import Case
from tests.support.differential.order import is_ordered
from tests.support.differential.scripts import Row

_TOLERANCE = 1e-9


def difference(expected: Sequence[Row], got: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Return the rows that are missing and those that are too many."""
    wanted, there = Counter(expected), Counter(got)
    missing, extra = list((wanted - there).elements()), list((there - wanted).elements())
    left = []
    for row in missing:
        match = next((other for other in extra if _near_rows(row, other)), None)
        if match is None:
            left.append(row)
        else:
            extra.remove(match)
    return left, extra


def _near_rows(left: Row, right: Row) -> bool:
    return len(left) == len(right) and all(_near(a, b) for a, b in zip(left, right, strict=True))


def _near(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return type(left) is type(right) and left == right


def assert_same_answer(case: Case, expected: list[Row], got: list[Row], how: str) -> None:
    """Compare as strictly as the plan promises: to the last bit, and in order."""
    plan = case.typed()
    report = f"{how}\n{case.description()}"
    left, right = [repr(row) for row in expected], [repr(row) for row in got]
    ordered = is_ordered(plan, plan.root.node)
    assert (left == right) if ordered else (sorted(left) == sorted(right)), report
