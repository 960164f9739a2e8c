"""Canonical forms: recognize plans that differ only in names and wording."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields

from mavstream_protocol.expressions.typed import Call, ColumnRef, Literal
from mavstream_protocol.plans.plan import InputRef, Plan, PlanNode
from mavstream_protocol.typed_plan import TypedNode, TypedPlan
from mavstream_server.planning.rewriting.expressions import conjuncts


def wording(plan: Plan) -> Hashable:
    """Return a value that is equal for plans that differ only in the names of nodes.

    It needs no types: a search recognizes most plans that it has seen before without checking their types.
    """
    order = _numbers(
        InputRef.parse(plan.root).node, lambda name: [r.node for r in plan.inputs(name).values()]
    )
    described = []
    for name in order:
        inputs = tuple(_numbered(reference, order) for reference in plan.inputs(name).values())
        described.append((inputs, _fields_text(plan.nodes[name])))
    return InputRef.parse(plan.root).output, tuple(described)


def canonical(typed: TypedPlan) -> Hashable:
    """Return a value that is equal for equal plans: nodes are numbered from the root down.

    A node with two readers and two identical nodes with one reader each differ: the former works only once.
    """
    numbers = _numbers(typed.root.node, lambda name: [r.node for r in typed.nodes[name].inputs])
    described = tuple(_described(typed.nodes[name], numbers) for name in numbers)
    return typed.root.output, described


def _fields_text(node: PlanNode) -> str:
    """Return the fields of a node as text, except its inputs and hints."""
    return repr([(name, value) for name, value in node if name not in {*node.input_fields, "hints"}])


def _numbers(root: str, below: Callable[[str], list[str]]) -> dict[str, int]:
    """Number the nodes below a root in depth-first order."""
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
    values = [
        getattr(node, field.name)
        for field in fields(node)
        if field.compare and field.name not in ("name", "inputs")
    ]
    return type(node).__name__, inputs, tuple(_plain(value) for value in values)


def _numbered(reference: InputRef, numbers: dict[str, int]) -> tuple[int, str | None]:
    return numbers[reference.node], reference.output


def _plain(value: object) -> Hashable:
    """Return a hashable, comparable form of a field.

    Windows are represented by their text, which is complete; nested conjunctions are flattened.
    """
    if isinstance(value, Literal | ColumnRef | Call):
        return conjuncts(value)
    return value if isinstance(value, tuple | str | bool | int) else repr(value)
