"""Conditions of joins: keys, distance in time, common windows, and what remains."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mavstream_protocol.errors import InvalidSql
from mavstream_protocol.expressions.syntax_tree import Tree
from mavstream_protocol.sql.cursor import Snippet
from mavstream_protocol.sql.planner.relations import Names, Relation
from mavstream_protocol.sql.source import SqlSource
from mavstream_protocol.sql.windows import ROW_TIME, WINDOW_COLUMNS, WINDOW_TIME

_TWICE_OPEN, _TWICE_CLOSED = re.compile(r"\(\s*\(\s*$"), re.compile(r"\s*\)\s*\)")
_MIRRORED = {">=": "<=", "<=": ">=", ">": "<", "<": ">"}


@dataclass(frozen=True, slots=True)
class JoinCondition:
    """What ON says, sorted by meaning."""

    keys: tuple[tuple[str, str], ...]
    within: dict[str, int] | None
    """Microseconds that the right row may be earlier (`before`) or later (`after`)."""
    same_window: bool
    rest: tuple[Snippet, ...]
    """Other conditions, joined by AND."""


class ConditionReader:
    """Reads the ON of a join of two relations."""

    def __init__(self, source: SqlSource, names: Names, left: Relation, right: Relation) -> None:
        self._source = source
        self._names = names
        self._sides = {"l": left, "r": right}
        self._windows: set[str] = set()
        self._bounds: dict[str, int] = {}

    def read(self, on: Snippet) -> JoinCondition:
        """Sort the conditions that AND joins; raises InvalidSql."""
        keys: list[tuple[str, str]] = []
        rest: list[Snippet] = []
        for part in _conjuncts(on, on.tree):
            whole = _in_two_parentheses(on, part)
            if not whole and (self._is_window(part.tree) or self._is_time(part)):
                continue
            key = None if whole else self._key(part)
            if key is None:
                rest.append(part)
            else:
                keys.append(key)
        return JoinCondition(tuple(keys), self._within(on), bool(self._windows), tuple(rest))

    def _key(self, part: Snippet) -> tuple[str, str] | None:
        tree = part.tree
        if tree.kind != "=" or any(operand.kind != "column" for operand in tree.operands):
            return None
        columns = [self._names.find(operand, part).reference for operand in tree.operands]
        left, right = sorted(columns)  # `l.` comes before `r.`
        if not (left.startswith("l.") and right.startswith("r.")):
            return None
        return left[2:], right[2:]

    def _is_window(self, tree: Tree) -> bool:
        """Take `l.window_start = r.window_start` of two windowed relations, once for each of the bounds."""
        if tree.kind != "=" or any(side.window is None for side in self._sides.values()):
            return False
        parts = [operand.value.lower().rpartition(".") for operand in tree.operands]
        (one, _, name), (other, _, second) = parts
        if any(operand.kind != "column" for operand in tree.operands) or one == other:
            return False
        if name != second or name not in WINDOW_COLUMNS or name in self._windows:
            return False
        self._windows.add(name)
        return True

    def _is_time(self, part: Snippet) -> bool:
        """Take `l.at BETWEEN r.at - INTERVAL ... AND r.at + INTERVAL ...` or one of its two halves."""
        tree = part.tree
        if tree.kind == "between":
            value, low, high = tree.operands
            return self._bound(">=", value, low) and self._bound("<=", value, high)
        if tree.kind in _MIRRORED and len(tree.operands) == 2:
            return self._bound(tree.kind, *tree.operands)
        return False

    def _bound(self, sign: str, value: Tree, limit: Tree) -> bool:
        """Take a comparison of the times of both sides; returns whether it is one."""
        first, second = self._time(value), self._time(limit)
        if first is None or second is None or first[0] == second[0]:
            return False
        if first[0] == "l":
            first, second, sign = second, first, _MIRRORED[sign]
        # The right time is now on the left side of the comparison.
        distance = second[1] - first[1]
        if sign in ("<", ">"):
            distance += 1 if sign == ">" else -1
        key, distance = ("before", -distance) if sign.startswith(">") else ("after", distance)
        self._bounds[key] = min(distance, self._bounds.get(key, distance))
        return True

    def _time(self, tree: Tree) -> tuple[str, int] | None:
        """Return the side whose time a tree is, and the microseconds that are added to it."""
        if tree.kind in ("+", "-"):
            operand, interval = tree.operands
            if interval.kind != "interval" or (below := self._time(operand)) is None:
                return None
            moved = int(interval.value) if tree.kind == "+" else -int(interval.value)
            return below[0], below[1] + moved
        if tree.kind != "column":
            return None
        for side, relation in self._sides.items():
            qualifier, _, name = tree.value.rpartition(".")
            if qualifier.lower() == relation.alias.lower() and is_time(relation, name):
                return side, 0
        found = self._names.matching(tree.value)
        if len(found) == 1 and found[0].reference[2:] in self._sides[found[0].reference[0]].times:
            return found[0].reference[0], 0
        return None

    def _within(self, on: Snippet) -> dict[str, int] | None:
        if not self._bounds:
            return None
        if len(self._bounds) < 2 or min(self._bounds.values()) < 0:
            raise self._unbounded(on)
        return self._bounds

    def _unbounded(self, on: Snippet) -> InvalidSql:
        return self._source.error(
            "invalid_window",
            "the times of a join must be bounded on both sides, and include equal times; write for example "
            "l.at BETWEEN r.at - INTERVAL '1' SECOND AND r.at + INTERVAL '1' SECOND",
            on.start,
            on.end,
        )


def is_time(relation: Relation, name: str) -> bool:
    """Whether a name means the time of a relation's rows."""
    if name.lower() == ROW_TIME or (name.lower() == WINDOW_TIME and relation.made_by_window):
        return True
    return name.lower() in (time.lower() for time in relation.times)


def joined(parts: Sequence[str]) -> str | None:
    """Return conditions joined by AND; None if there are none."""
    if len(parts) < 2:
        return parts[0] if parts else None
    return " AND ".join(f"({part})" for part in parts)


def _conjuncts(whole: Snippet, tree: Tree) -> list[Snippet]:
    """Return the conditions that AND joins; one in two pairs of parentheses stays as it is."""
    part = whole.part(tree)
    if tree.kind != "and" or _in_two_parentheses(whole, part):
        return [part]
    return [one for operand in tree.operands for one in _conjuncts(whole, operand)]


def _in_two_parentheses(whole: Snippet, part: Snippet) -> bool:
    """Whether a condition stands in two pairs of parentheses: then it is a condition and no key."""
    start, end = part.start - whole.start, part.end - whole.start
    before, after = whole.text[:start], whole.text[end:]
    return bool(_TWICE_OPEN.search(before) and _TWICE_CLOSED.match(after))
