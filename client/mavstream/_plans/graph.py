"""From nested values to a plan: every operator once, under a name that can be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from mavstream_protocol import InvalidPlan, Plan, ProblemItem


@dataclass(frozen=True, slots=True)
class Node:
    """An operator with what it reads; equal ones become one.

    `parts` is JSON text, which makes nodes comparable and keeps callers from changing what they gave.
    """

    op: str
    parts: bytes
    inputs: tuple[tuple[str, Node, str | None], ...] = ()
    """Key in the plan, node, and for a split which output; `inputs` may come several times."""
    name: str | None = None

    @property
    def hint(self) -> str:
        """The name that it gets if nothing else has it: that of a stream or table, else the operator's."""
        key = {"source": "stream", "table": "table"}.get(self.op)
        return self.op if key is None else str(orjson.loads(self.parts)[key])


def plan_of(root: Node, output: str | None) -> Plan:
    """Return the plan with this root; raises InvalidPlan."""
    places: dict[int, int] = {}
    operators: dict[_Operator, int] = {}
    _place(root, places, operators)
    ordered = list(operators)
    names = _names(ordered)
    return Plan.parse(
        {
            "version": 1,
            "root": _reference(names[places[id(root)]], output),
            "nodes": {name: _json(operator, names) for name, operator in zip(names, ordered, strict=True)},
        }
    )


class _Operator(NamedTuple):
    """A node whose inputs are places in the list of operators, so that comparing it is not deep."""

    op: str
    parts: bytes
    inputs: tuple[tuple[str, int, str | None], ...]
    name: str | None
    hint: str


def _place(node: Node, places: dict[int, int], operators: dict[_Operator, int]) -> int:
    """Put a node behind its inputs, each node once, equal ones together; return its place."""
    if id(node) not in places:
        inputs = tuple((key, _place(below, places, operators), output) for key, below, output in node.inputs)
        operator = _Operator(node.op, node.parts, inputs, node.name, node.hint)
        places[id(node)] = operators.setdefault(operator, len(operators))
    return places[id(node)]


def _names(operators: list[_Operator]) -> list[str]:
    """Give chosen names first, then others in the order of the plan, numbered where they repeat."""
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
