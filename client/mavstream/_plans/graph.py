"""Conversion of nested flows to a plan: every operator once, under a readable name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from mavstream_protocol import InvalidPlan, Plan, ProblemItem


@dataclass(frozen=True, slots=True)
class Node:
    """An operator and its inputs; equal nodes become one operator.

    `parts` is JSON text, which makes nodes comparable and protects them from changes by the caller.
    """

    op: str
    parts: bytes
    inputs: tuple[tuple[str, Node, str | None], ...] = ()
    """Key in the plan, node, and which output of a split; the key `inputs` may occur several times."""
    name: str | None = None

    @property
    def hint(self) -> str:
        """The default name: that of the stream, query or table, else of the operator's kind."""
        if self.op not in ("source", "table"):
            return self.op
        parts = orjson.loads(self.parts)
        return str(next(parts[key] for key in ("stream", "query", "table") if key in parts))


def plan_of(root: Node, output: str | None) -> Plan:
    """Return the plan with this root; raises InvalidPlan."""
    indexes: dict[int, int] = {}
    operators: dict[_Operator, int] = {}
    _add(root, indexes, operators)
    ordered = list(operators)
    names = _names(ordered)
    return Plan.parse(
        {
            "version": 1,
            "root": _reference(names[indexes[id(root)]], output),
            "nodes": {name: _json(operator, names) for name, operator in zip(names, ordered, strict=True)},
        }
    )


class _Operator(NamedTuple):
    """A node whose inputs are indexes into the list of operators, so that comparison is shallow."""

    op: str
    parts: bytes
    inputs: tuple[tuple[str, int, str | None], ...]
    name: str | None
    hint: str


def _add(node: Node, indexes: dict[int, int], operators: dict[_Operator, int]) -> int:
    """Add a node behind its inputs unless an equal one is there; return its index."""
    if id(node) not in indexes:
        inputs = tuple((key, _add(below, indexes, operators), output) for key, below, output in node.inputs)
        operator = _Operator(node.op, node.parts, inputs, node.name, node.hint)
        indexes[id(node)] = operators.setdefault(operator, len(operators))
    return indexes[id(node)]


def _names(operators: list[_Operator]) -> list[str]:
    """Return names: chosen ones, and defaults in the order of the plan, numbered where they repeat."""
    chosen = [operator.name for operator in operators if operator.name is not None]
    for name in chosen:
        if chosen.count(name) > 1:
            raise InvalidPlan([_twice(name)])
    taken = set(chosen)
    names = []
    for operator in operators:
        names.append(operator.name or _free(operator.hint, taken))
        taken.add(names[-1])
    return names


def _free(hint: str, taken: set[str]) -> str:
    name, number = hint, 1
    while name in taken:
        number += 1
        name = f"{hint[:58]}_{number}"
    return name


def _json(operator: _Operator, names: list[str]) -> dict[str, Any]:
    data: dict[str, Any] = {"op": operator.op}
    for key, below, output in operator.inputs:
        reference = _reference(names[below], output)
        if key == "inputs":
            data.setdefault(key, []).append(reference)
        else:
            data[key] = reference
    return {**data, **orjson.loads(operator.parts)}


def _reference(name: str, output: str | None) -> str:
    return name if output is None else f"{name}.{output}"


def _twice(name: str) -> ProblemItem:
    detail = f"two different operators are named '{name}': rename one"
    return ProblemItem(pointer=f"nodes/{name}", code="duplicate_name", detail=detail)
