"""Reuse of operators: which nodes of two plans compute the same from the same rows."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from mavstream_protocol.expressions.typed import Call, ColumnRef, Expression, Literal
from mavstream_protocol.typed_plan import TypedNode, TypedPlan


def kept_nodes(old: TypedPlan, new: TypedPlan, one_time: bool) -> frozenset[str]:
    """Return the nodes of a new plan for which the old plan's operators can be reused, with their state.

    These have the same name and definition, read the same rows and emit the same columns. Consecutive selects
    emit the same rows in any order and however their predicates are split: a row passes if every conjunct is
    true. So operators above them are reused when selects are reordered. Above a new stateful operator none
    is reused, so that all of them start together.
    """
    numbers: dict[Hashable, int] = {}
    before, after = _NodeNumbers(old, one_time, numbers), _NodeNumbers(new, one_time, numbers)
    kept: set[str] = set()
    anew: set[str] = set()  # new stateful nodes, and all nodes above them
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
    """Whether a plan has windows by rows, whose bounds depend on where the query began."""
    return any(node.counts_rows for node in plan.nodes.values())


class _NodeNumbers:
    """The definitions and outputs of a plan's nodes, as numbers that are equal if these are."""

    def __init__(self, plan: TypedPlan, one_time: bool, numbers: dict[Hashable, int]) -> None:
        self._plan = plan
        self._once = plan.one_time_node.name if one_time else None
        self.columns = plan.needed_columns()
        self.own: dict[str, int] = {}
        """The number of what each node computes from which rows, by node."""
        self.rows: dict[str, int] = {}
        """The number of the rows that each node emits, by node."""
        for node in plan.nodes.values():
            inputs = tuple((self.rows[reference.node], reference.output) for reference in node.inputs)
            definition = (inputs, self._definition(node))
            self.own[node.name] = self.rows[node.name] = numbers.setdefault(definition, len(numbers))
            if node.predicate is not None:
                selected = ("selects", *self._selected(node))
                self.rows[node.name] = numbers.setdefault(selected, len(numbers))

    def _definition(self, node: TypedNode) -> Hashable:
        signature = node.signature(frozenset(self.columns[node.name]))
        definition = (*map(_hashable, signature), node.name == self._once)
        # Each source has its own cursor: two on the same stream are at different positions.
        return definition if node.inputs else (*definition, node.name)

    def _selected(self, node: TypedNode) -> tuple[Hashable, frozenset[Expression]]:
        """Return the input of consecutive selects, and the conjuncts of all their predicates."""
        conjuncts: set[Expression] = set()
        while node.predicate is not None:
            conjuncts |= set(_conjuncts(node.predicate))
            below = node.inputs[0]
            node = self._plan.nodes[below.node]
        return (self.rows[below.node], below.output), frozenset(conjuncts)


def _conjuncts(predicate: Expression) -> Iterator[Expression]:
    if isinstance(predicate, Call) and predicate.function == "and":
        for argument in predicate.arguments:
            yield from _conjuncts(argument)
    else:
        yield predicate


def _hashable(value: object) -> Hashable:
    """Return a hashable value; windows are models whose repr is complete."""
    hashable = (tuple, str, bool, int, Literal, ColumnRef, Call)
    return value if isinstance(value, hashable) else repr(value)
