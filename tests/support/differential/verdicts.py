"""Whether the engine agrees with the oracle, and a short reproduction if not."""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.differential.cases import Case
from tests.support.differential.comparison import difference
from tests.support.differential.engine_runs import QueryBroke, Variant, run_case
from tests.support.differential.oracle import Oracle, Unanswerable
from tests.support.differential.scripts import Row
from tests.support.differential.shrinking import shrunk

_SHOWN = 6


def disagreement(oracle: Oracle, case: Case, expected: list[Row], variants: Iterable[Variant]) -> str | None:
    """Run a case in several variants; returns a report of the first that differs, shrunk, or None."""
    for variant in variants:
        if _report(case, variant, expected) is not None:
            return _reproduction(oracle, case, variant)
    return None


def _report(case: Case, variant: Variant, expected: list[Row]) -> str | None:
    try:
        got = run_case(case, variant)
    except QueryBroke as error:
        return str(error)
    missing, extra = difference(expected, got)
    if not missing and not extra:
        return None
    return (
        f"expected {len(expected)} rows, got {len(got)}\n"
        f"missing ({len(missing)}): {missing[:_SHOWN]}\ntoo many ({len(extra)}): {extra[:_SHOWN]}"
    )


def _reproduction(oracle: Oracle, case: Case, variant: Variant) -> str:
    def fails(smaller: Case) -> bool:
        try:
            return _report(smaller, variant, oracle.answer(smaller)) is not None
        except Unanswerable:
            return False

    small = shrunk(case, fails)
    return f"{small.description()}\n{variant}\n{_report(small, variant, oracle.answer(small))}"
