"""Sameness: which nodes of two plans do the same to the same rows, so that one operator can serve both."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import fields

from mavstream_protocol.expressions.typed import Call, ColumnRef, Expression, Literal
from mavstream_protocol.typed_plan import (
    TypedAggregate,
    TypedExcept,
    TypedJoin,
    TypedNode,
    TypedPlan,
    TypedProject,
    TypedSelect,
    TypedTableJoin,
    TypedUnion,
)
from mavstream_protocol.windows import RowWindow
from mavstream_server.planning.instantiator import needed_columns, one_time_node


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
        alike = same and (_carries_all(node) or before.columns[name] == after.columns[name])
        above = any(reference.node in anew for reference in node.inputs)
        if alike and not above:
            kept.add(name)
        elif above or has_memory(node):
            anew.add(name)
    return frozenset(kept)


def has_memory(node: TypedNode) -> bool:
    """Whether what its operator answers depends on rows that came before: a new one must get to know them."""
    if isinstance(node, TypedUnion):
        return node.ordered
    return isinstance(node, TypedAggregate | TypedExcept | TypedJoin)


def counts_rows(plan: TypedPlan) -> bool:
    """Whether a plan has windows by rows, which never forget where they began."""
    return any(isinstance(getattr(node, "window", None), RowWindow) for node in plan.nodes.values())


class _Described:
    """What the nodes of a plan say and give, as numbers that are equal where that is."""

    def __init__(self, plan: TypedPlan, one_time: bool, numbers: dict[Hashable, int]) -> None:
        self._plan = plan
        self._once = one_time_node(plan) if one_time else None
        self.columns = needed_columns(plan)
        self.own: dict[str, int] = {}
        """By node: what it does to which rows."""
        self.rows: dict[str, int] = {}
        """By node: which rows it gives."""
        for node in plan.nodes.values():
            inputs = tuple((self.rows[reference.node], reference.output) for reference in node.inputs)
            said = (type(node).__name__, inputs, self._said(node))
            self.own[node.name] = self.rows[node.name] = numbers.setdefault(said, len(numbers))
            if isinstance(node, TypedSelect):
                given = ("selects", *self._selected(node))
                self.rows[node.name] = numbers.setdefault(given, len(numbers))

    def _said(self, node: TypedNode) -> Hashable:
        told = [getattr(node, f.name) for f in fields(node) if f.name not in ("name", "inputs", "schema")]
        said = (*map(_plain, told), node.name == self._once)
        if isinstance(node, TypedProject | TypedTableJoin):
            # A row may be skipped for a column that fails, and only columns that are read are computed.
            return (*said, self.columns[node.name])
        # A source is a cursor of its own: two on the same stream stand at different rows.
        return said if node.inputs else (*said, node.name)

    def _selected(self, node: TypedSelect) -> tuple[Hashable, frozenset[Expression]]:
        """Return what stands below a row of selects, and the parts of all their predicates."""
        parts = set(_parts(node.where))
        below = node.inputs[0]
        while isinstance(under := self._plan.nodes[below.node], TypedSelect):
            parts |= set(_parts(under.where))
            below = under.inputs[0]
        return (self.rows[below.node], below.output), frozenset(parts)


def _carries_all(node: TypedNode) -> bool:
    """Whether an operator gives all columns of its node, whoever reads them."""
    return not node.inputs or isinstance(node, TypedAggregate | TypedExcept | TypedJoin)


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
