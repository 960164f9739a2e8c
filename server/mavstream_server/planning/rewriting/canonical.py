"""Canonical forms: two plans that differ in names and wording alone are the same plan."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields

from mavstream_protocol.expressions.typed import Call, ColumnRef, Literal
from mavstream_protocol.plan import InputRef, Plan, PlanNode
from mavstream_protocol.typed_plan import TypedNode, TypedPlan
from mavstream_server.planning.rewriting.expressions import conjuncts


def wording(plan: Plan) -> Hashable:
    """Return a value that is equal for plans that differ in the names of nodes alone.

    It needs no types: most plans that a search meets again are told from it without being checked.
    """
    order = _numbers(
        InputRef.parse(plan.root).node, lambda name: [r.node for r in plan.inputs(name).values()]
    )
    described = []
    for name in order:
        inputs = tuple(_numbered(reference, order) for reference in plan.inputs(name).values())
        described.append((inputs, _told(plan.nodes[name])))
    return InputRef.parse(plan.root).output, tuple(described)


def canonical(typed: TypedPlan) -> Hashable:
    """Return a value that is equal for equal plans: nodes are numbered from the root down.

    A node that two read is another plan than two alike nodes: it works once.
    """
    numbers = _numbers(typed.root.node, lambda name: [r.node for r in typed.nodes[name].inputs])
    described = tuple(_described(typed.nodes[name], numbers) for name in numbers)
    return typed.root.output, described


def _told(node: PlanNode) -> str:
    """Return what a node says, except its inputs and hints."""
    return repr([(name, value) for name, value in node if name not in {*node.input_fields, "hints"}])


def _numbers(root: str, below: Callable[[str], list[str]]) -> dict[str, int]:
    """Number the nodes that a root needs, in the order in which a walk down meets them."""
    numbers: dict[str, int] = {}
    waiting = [root]
    while waiting:
        name = waiting.pop()
        if name not in numbers:
            numbers[name] = len(numbers)
            waiting += reversed(below(name))
    return numbers


def _described(node: TypedNode, numbers: dict[str, int]) -> Hashable:
    inputs = tuple(_numbered(reference, numbers) for reference in node.inputs)
    told = [
        getattr(node, field.name)
        for field in fields(node)
        if field.compare and field.name not in ("name", "inputs")
    ]
    return type(node).__name__, inputs, tuple(_plain(value) for value in told)


def _numbered(reference: InputRef, numbers: dict[str, int]) -> tuple[int, str | None]:
    return numbers[reference.node], reference.output


def _plain(value: object) -> Hashable:
    """Return something that can be hashed and compared.

    Windows are models, and tell all in their text; the parts of a conjunction are the same if nested.
    """
    if isinstance(value, Literal | ColumnRef | Call):
        return conjuncts(value)
    return value if isinstance(value, tuple | str | bool | int) else repr(value)
