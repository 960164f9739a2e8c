"""Compares the results of queries with expected answers: two multisets of rows."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mavstream_protocol import FieldSpec

Row = tuple[Any, ...]

TOLERANCE = 1e-9
"""Relative and absolute difference at which floats are equal: sums depend on the order of their rows."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the results of a query differ from the expected ones."""

    name: str
    fields: tuple[FieldSpec, ...]
    """The columns of its rows."""
    expected: int
    """Rows that are expected."""
    found: int
    """Rows that the query has given."""
    missing: tuple[Row, ...]
    """Expected rows that were not found, each as often as it is missing."""
    unexpected: tuple[Row, ...]
    """Rows that were found and are not expected."""

    @property
    def same(self) -> bool:
        """Whether both have the same rows."""
        return not self.missing and not self.unexpected


def compared(name: str, fields: tuple[FieldSpec, ...], expected: pa.Table, found: pa.Table) -> Comparison:
    """Compare two tables with the same columns as multisets of rows, floats within `TOLERANCE`."""
    wanted, given = Counter(plain_rows(expected)), Counter(plain_rows(found))
    missing, unexpected = _without_near(wanted - given, given - wanted)
    return Comparison(name, fields, expected.num_rows, found.num_rows, tuple(missing), tuple(unexpected))


def plain_rows(table: pa.Table) -> list[Row]:
    """Return rows as tuples that can be compared: instants as microseconds since 1970."""
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        columns.append(column.to_pylist())
    return list(zip(*columns, strict=True))


def _without_near(missing: Counter[Row], unexpected: Counter[Row]) -> tuple[list[Row], list[Row]]:
    """Return the rows of both without pairs that differ only in the last digits of floats."""
    candidates: defaultdict[Row, list[Row]] = defaultdict(list)
    for row in unexpected.elements():
        candidates[_exact(row)].append(row)
    for rows in candidates.values():
        rows.sort(key=_floats)
    left = [row for row in _sorted(missing.elements()) if not _taken(row, candidates[_exact(row)])]
    return left, _sorted(row for rows in candidates.values() for row in rows)


def _taken(row: Row, candidates: list[Row]) -> bool:
    """Remove a candidate that is near a row, and return whether there was one; they are sorted by floats."""
    floats = _floats(row)
    if not floats:
        return False  # without floats, a near row is an equal one
    least: tuple[float, ...] = (floats[0] - max(abs(floats[0]), 1.0) * TOLERANCE * 2,)
    for index in range(bisect_left(candidates, least, key=_floats), len(candidates)):
        other = _floats(candidates[index])
        if other[0] > floats[0] and not _near(floats[0], other[0]):
            return False
        if all(map(_near, floats, other)):
            del candidates[index]
            return True
    return False


def _near(left: float, right: float) -> bool:
    return math.isclose(left, right, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _exact(row: Row) -> Row:
    """Return the values that must be equal; places of floats are marked."""
    return tuple(float if isinstance(value, float) else value for value in row)


def _floats(row: Sequence[Any]) -> tuple[float, ...]:
    return tuple(value for value in row if isinstance(value, float))


def _sorted(rows: Iterable[Row]) -> list[Row]:
    """Return rows in an order that does not depend on the run, also with nulls."""
    return sorted(rows, key=lambda row: [(value is not None, type(value).__name__, value) for value in row])
