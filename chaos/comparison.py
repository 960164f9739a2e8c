"""Comparison of answers with those that were expected, as multisets, with a tolerance for floats."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

Row: TypeAlias = Sequence[Any]
TOLERANCE = 1e-9
_SHOWN = 3


class Difference(NamedTuple):
    """How answers differ from those that were expected; each counts rows."""

    lost: int = 0
    """Expected more often than they came."""
    repeated: int = 0
    """They came more often than expected."""
    altered: int = 0
    """They came with other floats than expected."""
    foreign: int = 0
    """They came and were not expected at all."""
    examples: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether nothing differs."""
        return not (self.lost or self.repeated or self.altered or self.foreign)

    def __str__(self) -> str:
        counts = {"lost": self.lost, "repeated": self.repeated, "altered": self.altered}
        counts["foreign"] = self.foreign
        shown = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        return f"{shown or 'no difference'}{'; ' if self.examples else ''}{'; '.join(self.examples)}"


class PausedRange(NamedTuple):
    """Row numbers between which a query was paused; rows at the edges may be answered or not."""

    start: int
    stop: int


class PutRange(NamedTuple):
    """Row numbers between which a version of a table became current."""

    generation: int
    start: int
    """Rows before this one had arrived before."""
    stop: int
    """Rows from this one on arrived after it."""


def compare(expected: Iterable[Row], found: Iterable[Row]) -> Difference:
    """Compare two multisets of rows; floats may differ by a relative 1e-9."""
    wanted, got = _by_key(expected), _by_key(found)
    lost = repeated = altered = foreign = 0
    examples: list[str] = []
    for key in wanted.keys() | got.keys():
        left, right = sorted(wanted.get(key, ())), sorted(got.get(key, ()))
        missing, extra = _unmatched(left, right)
        wrong = min(missing, extra)
        lost += missing - wrong
        altered += wrong
        if left:
            repeated += extra - wrong
        else:
            foreign += extra
        if (missing or extra) and len(examples) < _SHOWN:
            examples.append(f"{key}: expected {left[:_SHOWN]}, found {right[:_SHOWN]}")
    return Difference(lost, repeated, altered, foreign, tuple(examples))


def compare_paused(rows: int, found: Iterable[int], pauses: Sequence[PausedRange]) -> Difference:
    """Compare the row numbers of a query that was paused: those of a pause may be missing."""
    counts: dict[int, int] = defaultdict(int)
    for number in found:
        counts[number] += 1
    excused = {number for pause in pauses for number in range(pause.start, min(pause.stop, rows))}
    lost = [number for number in range(rows) if number not in counts and number not in excused]
    repeated = [number for number, count in counts.items() if count > 1 and number < rows]
    foreign = [number for number in counts if number >= rows or number < 0]
    named = (("lost", lost), ("repeated", repeated), ("foreign", foreign))
    examples = tuple(f"{name} {each[:_SHOWN]}" for name, each in named if each)
    more = sum(counts[number] - 1 for number in repeated)
    return Difference(len(lost), more, 0, len(foreign), examples)


def compare_versions(expected: Iterable[Row], found: Iterable[Row], puts: Sequence[PutRange]) -> Difference:
    """Compare rows of number, label and generation: each row must have joined a version it could have met.

    Rows without a label have joined nothing. `expected` has no generations; generations never decrease.
    """
    found = sorted(found)
    difference = compare((row[:2] for row in expected), (row[:2] for row in found))
    joined = [(number, generation) for number, label, generation in found if label is not None]
    wrong = [one for one, after in pairwise(joined) if one[1] > after[1]]
    for generation, start, stop in puts:
        wrong += [one for one in joined if one[0] < start and one[1] >= generation]
        wrong += [one for one in joined if one[0] >= stop and one[1] < generation]
    examples = [f"{number} joined version {generation}" for number, generation in wrong[:_SHOWN]]
    altered = difference.altered + len(wrong)
    return difference._replace(altered=altered, examples=(*difference.examples, *examples))


def compare_shed(rows: int, found: Iterable[int], shed: int) -> Difference:
    """Compare the row numbers of a query that was shed: as many are missing as it has counted."""
    difference = compare_paused(rows, found, ())
    return difference._replace(lost=abs(difference.lost - shed), examples=difference.examples)


def _by_key(rows: Iterable[Row]) -> dict[tuple[Any, ...], list[tuple[float, ...]]]:
    """Group rows by all that has to be equal, with the floats of each row."""
    found: dict[tuple[Any, ...], list[tuple[float, ...]]] = defaultdict(list)
    for row in rows:
        key = tuple(_plain(value) for value in row if not isinstance(value, float))
        found[key].append(tuple(value for value in row if isinstance(value, float)))
    return found


def _unmatched(wanted: list[tuple[float, ...]], got: list[tuple[float, ...]]) -> tuple[int, int]:
    """Return how many of each of two sorted lists have no counterpart in the other one."""
    at, by, matched = 0, 0, 0
    while at < len(wanted) and by < len(got):
        if _close(wanted[at], got[by]):
            at, by, matched = at + 1, by + 1, matched + 1
        elif wanted[at] < got[by]:
            at += 1
        else:
            by += 1
    return len(wanted) - matched, len(got) - matched


def _plain(value: Any) -> Any:
    # DuckDB's timestamps have no zone, those of the server are in UTC.
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def _close(left: tuple[float, ...], right: tuple[float, ...]) -> bool:
    return len(left) == len(right) and all(
        math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=1e-300) for a, b in zip(left, right, strict=True)
    )
