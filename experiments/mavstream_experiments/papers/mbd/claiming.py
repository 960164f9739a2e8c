"""Numbers that claims about classes are worked out from."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mavstream_experiments.model import Table

Value = Callable[[Table], float]

LEVELS = ("", ".p50", ".p75", ".p90", ".p95")
"""The mean and the percentiles that the dissertation looks for inversions at."""


def figure(cell: str, name: str) -> Value:
    """Return a figure of a cell."""
    return lambda table: table[cell][name]


def ratio(cell: str, name: str, other: str, other_name: str | None = None) -> Value:
    """Return how many times a figure is another cell's: the same one, if no other is named."""
    return lambda table: table[cell][name] / table[other][other_name or name]


def highest_of(cell: str, classes: Iterable[str]) -> Value:
    """Return the highest mean response time of the classes, in ms."""
    return lambda table: max(table[cell][f"{name}.mean"] for name in classes)


def over_others(cell: str, name: str, classes: Iterable[str]) -> Value:
    """Return how many times the mean of a class is the highest of the others' means."""
    others = [f"{one}.mean" for one in classes if one != name]
    return lambda table: table[cell][f"{name}.mean"] / max(table[cell][one] for one in others)


def inversion_at_any_level(cell: str) -> Value:
    """Return the highest inversion ratio at the mean and at the percentiles."""
    return lambda table: max(table[cell][f"inversion{level}"] for level in LEVELS)


def inverted(cells: Iterable[str]) -> Value:
    """Return how many of the cells have priority inversion at the mean."""
    chosen = tuple(cells)
    return lambda table: sum(table[cell]["inversion"] > 0 for cell in chosen)


def least_over(cells: Iterable[str], base: str, names: Iterable[str]) -> Value:
    """Return the least factor by which any of the figures of the cells is above that of a base."""
    chosen, figures = tuple(cells), tuple(names)
    return lambda table: min(table[cell][name] / table[base][name] for cell in chosen for name in figures)


def left_of_inversion(cell: str, base: str, level: str = "") -> Value:
    """Return how many percent of the inversion ratio of a base are left; 100 if it had none to remove."""

    def value(table: Table) -> float:
        before, now = table[base][f"inversion{level}"], table[cell][f"inversion{level}"]
        return 100 * now / before if before else 100.0

    return value


def against_least(cell: str, others: Iterable[str], name: str) -> Value:
    """Return how many times a figure is the least of the other cells'."""
    chosen = tuple(one for one in others if one != cell)
    return lambda table: (table[cell][name] + _LITTLE) / (min(table[one][name] for one in chosen) + _LITTLE)


def against_most(cell: str, others: Iterable[str], name: str) -> Value:
    """Return how many times a figure is the highest of the other cells'."""
    chosen = tuple(one for one in others if one != cell)
    return lambda table: (table[cell][name] + _LITTLE) / (max(table[one][name] for one in chosen) + _LITTLE)


def closest(cell: str, others: Iterable[str], base: str, name: str) -> Value:
    """Return how much nearer a cell's figure is to that of a base than the nearest of the others' is.

    Less than nothing: another one is nearer.
    """
    chosen = tuple(one for one in others if one != cell)

    def value(table: Table) -> float:
        nearest = min(abs(table[one][name] - table[base][name]) for one in chosen)
        return nearest - abs(table[cell][name] - table[base][name])

    return value


_LITTLE = 1e-9  # updates may be none at all
