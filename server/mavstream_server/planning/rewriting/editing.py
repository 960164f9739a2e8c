"""Editing: new plans from old ones, which stay as they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mavstream_protocol.plan import (
    AggregateNode,
    ExceptNode,
    JoinNode,
    Node,
    Plan,
    ProjectNode,
    SelectNode,
    SplitNode,
    UnionNode,
)

_LONGEST_NAME = 64


class Draft:
    """A plan in the making: nodes are put, dropped and connected anew, then checked once as a whole."""

    def __init__(self, plan: Plan) -> None:
        self.nodes: dict[str, Node] = dict(plan.nodes)
        self.root = plan.root

    def put(self, name: str, node: Node) -> None:
        """Add a node, or put another in its place."""
        self.nodes[name] = node

    def drop(self, name: str) -> None:
        """Leave a node out; whoever reads it must be connected to something else."""
        del self.nodes[name]

    def fresh(self, like: str) -> str:
        """Return a name that no node has, made from one: `hot` gives `hot_2`, `hot_3`, ..."""
        number = 2
        while True:
            ending = f"_{number}"
            name = like[: _LONGEST_NAME - len(ending)] + ending
            if name not in self.nodes:
                return name
            number += 1

    def reconnect(self, old: str, new: str, but: Collection[str] = ()) -> None:
        """Let everyone who reads `old` read `new`, except the nodes in `but`."""
        for name, node in self.nodes.items():
            if name not in but:
                self.nodes[name] = with_inputs(node, {old: new})
        if self.root == old:
            self.root = new

    def plan(self) -> Plan:
        """Return the plan; raises InvalidPlan."""
        return Plan.parse({"root": self.root, "nodes": self.nodes})


def with_inputs(node: Node, changes: Mapping[str, str]) -> Node:
    """Return a node that reads other nodes instead."""
    match node:
        case SelectNode() | ProjectNode() | SplitNode() | AggregateNode():
            if node.input in changes:
                return node.model_copy(update={"input": changes[node.input]})
        case UnionNode():
            if any(text in changes for text in node.inputs):
                return node.model_copy(update={"inputs": tuple(changes.get(t, t) for t in node.inputs)})
        case ExceptNode() | JoinNode():
            if node.left in changes or node.right in changes:
                left, right = (changes.get(text, text) for text in (node.left, node.right))
                return node.model_copy(update={"left": left, "right": right})
        case _:
            pass
    return node


def select(input_: str, where: str) -> SelectNode:
    """Return a select."""
    return SelectNode(op="select", input=input_, where=where)
