"""Editing: builds new plans from existing ones, which are not changed."""

from __future__ import annotations

from collections.abc import Collection

from mavstream_protocol.plans.hints import Hints
from mavstream_protocol.plans.plan import Node, Plan, SelectNode

_LONGEST_NAME = 64


class Draft:
    """A mutable copy of a plan: nodes are put, dropped and reconnected, then checked once as a whole."""

    def __init__(self, plan: Plan) -> None:
        self.nodes: dict[str, Node] = dict(plan.nodes)
        self.root = plan.root

    def put(self, name: str, node: Node) -> None:
        """Add or replace a node."""
        self.nodes[name] = node

    def drop(self, name: str) -> None:
        """Remove a node; its readers must be reconnected to another one."""
        del self.nodes[name]

    def fresh(self, like: str) -> str:
        """Return an unused name derived from `like`: `hot` gives `hot_2`, `hot_3`, ..."""
        number = 2
        while True:
            ending = f"_{number}"
            name = like[: _LONGEST_NAME - len(ending)] + ending
            if name not in self.nodes:
                return name
            number += 1

    def reconnect(self, old: str, new: str, but: Collection[str] = ()) -> None:
        """Make all readers of `old` read `new` instead, except the nodes in `but`."""
        for name, node in self.nodes.items():
            if name not in but:
                self.nodes[name] = node.reading({old: new})
        if self.root == old:
            self.root = new

    def plan(self) -> Plan:
        """Return the checked plan; raises InvalidPlan."""
        return Plan.parse({"root": self.root, "nodes": self.nodes})


def moved_select(node: SelectNode, input_: str, where: str | None = None) -> SelectNode:
    """Return a select with the same predicate on another input, reworded if `where` is given.

    Its hints stay, except for the size of rows, which may differ there.
    """
    predicate = node.where if where is None else where
    return node.model_copy(update={"input": input_, "where": predicate, "hints": unsized(node.hints)})


def unsized(hints: Hints | None) -> Hints | None:
    """Return the hints without the size of rows."""
    return None if hints is None else hints.model_copy(update={"size": None})


def select(input_: str, where: str) -> SelectNode:
    """Return a new select node."""
    return SelectNode(op="select", input=input_, where=where)
