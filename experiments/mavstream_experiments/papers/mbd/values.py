"""Values of claims about classes and modules, computed from the metrics of cells."""

from __future__ import annotations

from collections.abc import Iterable
from math import nan

from mavstream_experiments.model import Table, Value

LEVELS = ("", ".p50", ".p75", ".p90", ".p95")
"""The mean and the percentiles at which the dissertation measures inversion."""
TO_REMOVE = "an inversion to remove"
"""What the values that compare modules against inversion need."""

_STABLE_BY = 0.9  # share of the run after which a schedule that still changes has not become stable


def metric(cell: str, name: str) -> Value:
    """Return a metric of a cell."""
    return lambda table: table[cell][name]


def ratio(cell: str, name: str, other: str, other_name: str | None = None) -> Value:
    """Return a metric divided by that of another cell: the same one, unless another is named."""
    return lambda table: table[cell][name] / table[other][other_name or name]


def highest_of(cell: str, classes: Iterable[str]) -> Value:
    """Return the highest mean response time of the classes, in ms."""
    return lambda table: max(table[cell][f"{name}.mean"] for name in classes)


def over_others(cell: str, name: str, classes: Iterable[str]) -> Value:
    """Return the mean response time of a class divided by the highest of the others."""
    others = [f"{one}.mean" for one in classes if one != name]
    return lambda table: table[cell][f"{name}.mean"] / max(table[cell][one] for one in others)


def inversion_at_any_level(cell: str) -> Value:
    """Return the highest inversion ratio at the mean and at the percentiles."""
    return lambda table: max(table[cell][f"inversion{level}"] for level in LEVELS)


def inverted(cells: Iterable[str]) -> Value:
    """Return the number of cells that have priority inversion at the mean."""
    chosen = tuple(cells)
    return lambda table: sum(table[cell]["inversion"] > 0 for cell in chosen)


def least_over(cells: Iterable[str], base: str, names: Iterable[str]) -> Value:
    """Return the least of the cells' metrics, each divided by that of the base."""
    chosen, metrics = tuple(cells), tuple(names)
    return lambda table: min(table[cell][name] / table[base][name] for cell in chosen for name in metrics)


def over_least(cell: str, others: Iterable[str], name: str) -> Value:
    """Return a metric divided by the least of the other cells."""
    chosen = tuple(one for one in others if one != cell)
    return lambda table: table[cell][name] / min(table[one][name] for one in chosen)


def over_most(cell: str, others: Iterable[str], name: str) -> Value:
    """Return a metric divided by the highest of the other cells."""
    chosen = tuple(one for one in others if one != cell)
    return lambda table: table[cell][name] / max(table[one][name] for one in chosen)


def nearer(cell: str, others: Iterable[str], base: str, name: str) -> Value:
    """Return the distance of the nearest other cell to the base, less that of the cell.

    Negative if another cell is nearer to the base.
    """
    chosen = tuple(one for one in others if one != cell)

    def value(table: Table) -> float:
        nearest = min(abs(table[one][name] - table[base][name]) for one in chosen)
        return nearest - abs(table[cell][name] - table[base][name])

    return value


# Effects of modules against inversion: NaN if the base has no inversion, because there is nothing to remove.


def remaining_inversion(cell: str, base: str, level: str = "") -> Value:
    """Return the inversion ratio of a cell in percent of that of the base."""

    def value(table: Table) -> float:
        before, now = table[base][f"inversion{level}"], table[cell][f"inversion{level}"]
        return 100 * now / before if before else nan

    return value


def not_removing(cells: Iterable[str], base: str, level: str = "") -> Value:
    """Return the number of cells that still have the inversion of the base."""
    chosen = tuple(cells)

    def value(table: Table) -> float:
        if not table[base][f"inversion{level}"]:
            return nan
        return sum(table[cell][f"inversion{level}"] > 0 for cell in chosen)

    return value


def first_to_be_stable(cell: str, others: Iterable[str], name: str, base: str, level: str = "") -> Value:
    """Return 100 if a cell's schedule becomes stable with the least `name` of all cells, otherwise 0.

    A schedule is stable if it is not updated any more in the last tenth of the run.
    """
    chosen = tuple(one for one in others if one != cell)

    def value(table: Table) -> float:
        if not table[base][f"inversion{level}"]:
            return nan
        stable = table[cell]["converged"] < _STABLE_BY * table[cell]["seconds"]
        return 100.0 if stable and table[cell][name] < min(table[one][name] for one in chosen) else 0.0

    return value
