"""Sameness: which nodes of two plans do the same to the same rows, so that one operator can serve both."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from mavstream_protocol.expressions.typed import Call, ColumnRef, Expression, Literal
from mavstream_protocol.typed_plan import TypedNode, TypedPlan


def kept_nodes(old: TypedPlan, new: TypedPlan, one_time: bool) -> frozenset[str]:
    """Return the nodes of a new plan for which the old plan's operators can go on, with all that they hold.

    These have the same name, say the same, get the same rows and hand on the same columns.
    Selects in a row give the same rows in whichever order and however they are cut: a row passes if every
    part of every predicate is true. So what stands above them is kept when they are reordered. Above an
    operator that must remember anew nothing is kept, so that all of it begins together.
    """
    numbers: dict[Hashable, int] = {}
    before, after = _Described(old, one_time, numbers), _Described(new, one_time, numbers)
    kept: set[str] = set()
    anew: set[str] = set()  # nodes that remember anew, or stand above one that does
    for name, node in new.nodes.items():
        same = name in old.nodes and before.own[name] == after.own[name]
        alike = same and (node.emits_all_columns or before.columns[name] == after.columns[name])
        above = any(reference.node in anew for reference in node.inputs)
        if alike and not above:
            kept.add(name)
        elif above or node.stateful:
            anew.add(name)
    return frozenset(kept)


def counts_rows(plan: TypedPlan) -> bool:
    """Whether a plan has windows by rows, which never forget where they began."""
    return any(node.counts_rows for node in plan.nodes.values())


class _Described:
    """What the nodes of a plan say and give, as numbers that are equal where that is."""

    def __init__(self, plan: TypedPlan, one_time: bool, numbers: dict[Hashable, int]) -> None:
        self._plan = plan
        self._once = plan.one_time_node.name if one_time else None
        self.columns = plan.needed_columns()
        self.own: dict[str, int] = {}
        """By node: what it does to which rows."""
        self.rows: dict[str, int] = {}
        """By node: which rows it gives."""
        for node in plan.nodes.values():
            inputs = tuple((self.rows[reference.node], reference.output) for reference in node.inputs)
            said = (inputs, self._said(node))
            self.own[node.name] = self.rows[node.name] = numbers.setdefault(said, len(numbers))
            if node.predicate is not None:
                given = ("selects", *self._selected(node))
                self.rows[node.name] = numbers.setdefault(given, len(numbers))

    def _said(self, node: TypedNode) -> Hashable:
        signature = node.signature(frozenset(self.columns[node.name]))
        said = (*map(_plain, signature), node.name == self._once)
        # A source is a cursor of its own: two on the same stream stand at different rows.
        return said if node.inputs else (*said, node.name)

    def _selected(self, node: TypedNode) -> tuple[Hashable, frozenset[Expression]]:
        """Return what stands below a row of selects, and the parts of all their predicates."""
        parts: set[Expression] = set()
        while node.predicate is not None:
            parts |= set(_parts(node.predicate))
            below = node.inputs[0]
            node = self._plan.nodes[below.node]
        return (self.rows[below.node], below.output), frozenset(parts)


def _parts(predicate: Expression) -> Iterator[Expression]:
    if isinstance(predicate, Call) and predicate.function == "and":
        for argument in predicate.arguments:
            yield from _parts(argument)
    else:
        yield predicate


def _plain(value: object) -> Hashable:
    """Return something that can be compared; windows are models, and tell all in their text."""
    plain = (tuple, str, bool, int, Literal, ColumnRef, Call)
    return value if isinstance(value, plain) else repr(value)
