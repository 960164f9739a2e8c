"""Three-way joins: two consecutive window joins, viewed as one join of three inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from mavstream_protocol.expressions.typed import ColumnRef, Expression, references
from mavstream_protocol.plans.windows import TimeWindow
from mavstream_protocol.schema import FieldType
from mavstream_server.planning.rewriting.expressions import can_fail, renamed, substituted
from mavstream_server.planning.rewriting.joins import wheres
from mavstream_server.planning.rewriting.matching import Join, every, join_at
from mavstream_server.planning.rewriting.subject import Subject

BOUNDS = ("window_start", "window_end")
Key = tuple[str, str]
"""A column of an input: the input's number as text, and the column's name."""


@dataclass(frozen=True)
class ThreeWay:
    """Two joins combined into one. Expressions name columns `0.x`, `1.x` and `2.x` by their input.

    Inputs 0 and 1 are those of the lower join; `w.window_start` and `w.window_end` are the bounds of the
    common window.
    """

    upper: str
    lower: str
    window: TimeWindow
    inputs: tuple[str, str, str]
    equal: tuple[tuple[Key, Key], ...]
    wheres: tuple[Expression, ...]
    compute: tuple[tuple[str, Expression], ...]

    def equal_keys(self, left: frozenset[str], right: frozenset[str]) -> list[tuple[Key, Key]]:
        """Return pairs of equal columns of the `left` and `right` inputs, one per set of equal columns.

        Equality is transitive, so a pair need not be a key of either join.
        """
        pairs = []
        for group in self._groups():
            lefts, rights = ([key for key in group if key[0] in side] for side in (left, right))
            if lefts and rights:
                possible = [(a, b) for a in lefts for b in rights]
                given = [(a, b) for a, b in possible if (a, b) in self.equal or (b, a) in self.equal]
                pairs.append((given or possible)[0])
        return pairs

    def simple(self) -> bool:
        """Whether no two columns of one input must equal the same column of another.

        Then one pair per set of equal columns is sufficient.
        """
        return all(len({key[0] for key in group}) == len(group) for group in self._groups())

    def _groups(self) -> list[list[Key]]:
        groups: list[list[Key]] = []
        for pair in self.equal:
            touched = [group for group in groups if any(key in group for key in pair)]
            merged = list(dict.fromkeys([*(key for group in touched for key in group), *pair]))
            groups = [group for group in groups if group not in touched] + [merged]
        return groups


def three_ways(subject: Subject) -> Iterator[ThreeWay]:
    """Yield the pairs of joins that may be combined.

    - Both have the same window by time, and windows do not overlap: then a row is in one window, and the
      triples of a window do not depend on the order of the joins; their time is the latest of the three. With
      overlapping windows, the lower join would give a pair once for each window.
    - Neither guarantees an order, since ties would be broken differently; and the query is not one-time.
    - The upper join is the only reader of the lower one, whose columns cannot fail; those that are keys of
      the upper join are columns of its inputs. The new lower join computes only what the upper one reads, so
      no column in the plan may be able to fail, unless failures are mere nulls.
    """
    if subject.surroundings.one_time or not subject.may_drop_columns:
        return
    for upper in every(subject, join_at):
        for field in ("left", "right"):
            lower = join_at(subject, subject.below(upper.name, field))
            if lower is None or subject.only_reader(lower.name) is None:
                continue
            window = upper.typed.window
            if not isinstance(window, TimeWindow) or window.step < window.size:
                continue
            if window != lower.typed.window or upper.typed.ordered or lower.typed.ordered:
                continue
            if any(can_fail(e) for _, e in lower.typed.compute):
                continue
            found = _together(upper, lower, window, field == "left")
            if found is not None and subject.may_move((*found.wheres, *(e for _, e in found.compute))):
                yield found


def _together(upper: Join, below: Join, window: TimeWindow, on_left: bool) -> ThreeWay | None:
    typed, lower = upper.typed, below.typed
    low = {"l.": "0.", "r.": "1."}
    made: dict[str, Expression] = {column: renamed(e, _prefixes(low)) for column, e in lower.compute}
    made |= {bound: ColumnRef(f"w.{bound}", FieldType.TIMESTAMP, False) for bound in BOUNDS}
    nested, other = ("l.", "r.") if on_left else ("r.", "l.")
    given = {f"{nested}{column}": expression for column, expression in made.items()}
    parts = []
    for expression in (*wheres(typed), *(e for _, e in typed.compute)):
        whole = substituted(renamed(expression, _prefixes({other: "2."})), given)
        if whole is None:
            return None
        parts.append(whole)
    equal: list[tuple[Key, Key]] = [(("0", left), ("1", right)) for left, right in lower.on]
    for pair in typed.on:
        column, key = pair if on_left else (pair[1], pair[0])
        expression = made[column]
        if not isinstance(expression, ColumnRef) or expression.name.startswith("w."):
            return None
        number, _, name = expression.name.partition(".")
        equal.append(((number, name), ("2", key)))
    count = len(wheres(typed))
    return ThreeWay(
        typed.name,
        lower.name,
        window,
        (below.node.left, below.node.right, upper.node.right if on_left else upper.node.left),
        tuple(equal),
        (*(renamed(part, _prefixes(low)) for part in wheres(lower)), *parts[:count]),
        tuple(zip((column for column, _ in typed.compute), parts[count:], strict=True)),
    )


def _prefixes(changes: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that replaces the prefixes of names."""

    def changed(name: str) -> str:
        old = next((old for old in changes if name.startswith(old)), "")
        return changes.get(old, "") + name.removeprefix(old)

    return changed


def inputs_read(expression: Expression) -> frozenset[str]:
    """Return the inputs that an expression over three inputs reads, and `w` if it reads window bounds."""
    return frozenset(name.partition(".")[0] for name in references(expression))
