"""A plan drawn as a tree: the output first, with expected rows and cost per second of each operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from mavstream_protocol.plans.plan import InputRef, Plan, PlanNode
from mavstream_server.planning.rewriting.costing.model import Assessment

_WIDEST = 72
"""Width of the descriptions, in characters; what is longer is cut."""
_HIDDEN = frozenset({"op", "hints"})


class _Line(NamedTuple):
    text: str
    rows: str
    cost: str


def plan_tree(plan: Plan, assessment: Assessment) -> str:
    """Return the drawing; an operator that two others read is drawn once and referred to then."""
    lines = list(_Drawing(plan, assessment).lines())
    width = max(len(line.text) for line in lines)
    rows = max(len(line.rows) for line in lines)
    return "\n".join(f"{line.text:<{width}}  {line.rows:>{rows}}  {line.cost}".rstrip() for line in lines)


class _Drawing:
    def __init__(self, plan: Plan, assessment: Assessment) -> None:
        self._plan = plan
        self._assessment = assessment
        self._drawn: set[str] = set()

    def lines(self) -> Iterator[_Line]:
        yield from self._node(InputRef.parse(self._plan.root), "", "")

    def _node(self, reference: InputRef, first: str, rest: str) -> Iterator[_Line]:
        """Yield the lines of a node and of what it reads, behind the box lines of those above."""
        name = reference.node
        node = self._plan.nodes[name]
        output = f".{reference.output}" if reference.output else ""
        if name in self._drawn:
            yield _Line(f"{first}{name}{output} (drawn above)", "", "")
            return
        self._drawn.add(name)
        rate, work = self._assessment.rates.get(reference), self._assessment.works.get(name)
        yield _Line(
            _cut(f"{first}{name}{output}: {_described(node)}"),
            "" if rate is None else f"{_number(rate)} rows/s",
            "" if work is None else f"{_number(work / 1000)} us/s",
        )
        inputs = list(self._plan.inputs(name).values())
        for number, below in enumerate(inputs, 1):
            last = number == len(inputs)
            corner, line = ("└─ ", "   ") if last else ("├─ ", "│  ")
            yield from self._node(below, rest + corner, rest + line)


def _described(node: PlanNode) -> str:
    """Return the operator and its parameters as they are written in the plan."""
    data = node.model_dump(mode="json", by_alias=True, exclude_unset=True)
    hidden = _HIDDEN | set(node.input_fields)
    shown = [f"{key} {_value(value)}" for key, value in data.items() if key not in hidden]
    return ", ".join([data["op"], *shown])


def _value(value: Any) -> str:
    match value:
        case Mapping():
            if "kind" in value:
                return " ".join(_value(part) for part in value.values())
            return "(" + ", ".join(f"{key} = {_value(part)}" for key, part in value.items()) + ")"
        case list():
            return "(" + ", ".join(_pair(part) for part in value) + ")"
        case _:
            return str(value)


def _pair(value: Any) -> str:
    return " = ".join(map(str, value)) if isinstance(value, list) else _value(value)


def _cut(text: str) -> str:
    text = " ".join(text.splitlines())
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.2g}"
