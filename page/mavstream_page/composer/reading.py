"""Reading of a plan from operators that may be incomplete: what is known is inferred, the rest are errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from mavstream_page.composer.operators import Operators
from mavstream_protocol import InvalidObject, Plan
from mavstream_protocol.errors import InvalidPlan, ProblemItem
from mavstream_protocol.plans.inference import infer, infer_node
from mavstream_protocol.plans.inference_scope import Scope
from mavstream_protocol.plans.plan import InputRef, Node
from mavstream_protocol.schema import Schema
from mavstream_protocol.sql import Catalog
from mavstream_protocol.streams import FieldSpec

Schemas = dict[str, tuple[FieldSpec, ...]]
"""The columns of operators by name."""
_NODE: TypeAdapter[Node] = TypeAdapter(Node)


@dataclass(frozen=True, slots=True)
class Reading:
    """What operators mean."""

    plan: Plan | None = None
    """The plan, if its form is right."""
    schemas: Schemas = field(default_factory=dict)
    errors: tuple[ProblemItem, ...] = ()


def read_plan(plan: Plan, catalog: Catalog) -> Reading:
    """Return the columns of a plan, or its errors."""
    try:
        typed = infer(plan, catalog.streams, catalog.tables)
    except InvalidObject as error:
        dumped = {name: node.model_dump(by_alias=True) for name, node in plan.nodes.items()}
        return Reading(plan, _partly(dumped, catalog)[0], tuple(error.items))
    return Reading(plan, {name: field_specs(node.schema) for name, node in typed.nodes.items()})


def read_operators(operators: Operators, root: str, catalog: Catalog) -> Reading:
    """Return the plan of operators; `root` is preferred where several could be the answer."""
    if not operators:
        return Reading()
    nodes: dict[str, Any] = {}
    errors: list[ProblemItem] = []
    for name, operator in operators.items():
        try:
            nodes[name] = operator.node()
        except ValueError as error:
            errors.append(_problem(name, str(error)))
    last = ends(operators)
    answer = root if root.partition(".")[0] in last else (last or list(operators))[-1]
    errors += [_problem(name, _loose(name, answer)) for name in last if name != answer.partition(".")[0]]
    try:
        plan = Plan.parse({"version": 1, "root": answer, "nodes": nodes})
    except InvalidPlan as error:
        errors += error.items
    else:
        if not errors:
            return read_plan(plan, catalog)
    schemas, more = _partly(nodes, catalog)
    return Reading(None, schemas, (*errors, *more))


def ends(operators: Operators) -> list[str]:
    """Return the operators that nobody reads."""
    read = {each.partition(".")[0] for one in operators.values() for _, each in one.reads()}
    return [name for name in operators if name not in read]


def field_specs(schema: Schema) -> tuple[FieldSpec, ...]:
    """Return the columns of a schema as the server describes them."""
    return tuple(FieldSpec(name=one.name, type=one.type, nullable=one.nullable) for one in schema)


def _loose(name: str, answer: str) -> str:
    return (
        f"nothing reads {name}, and the answer is {answer}: connect {name} to another operator, or remove it"
    )


def _problem(node: str, detail: str) -> ProblemItem:
    return ProblemItem(pointer=f"nodes/{node}", code="incomplete", detail=detail)


def _partly(nodes: Mapping[str, Any], catalog: Catalog) -> tuple[Schemas, tuple[ProblemItem, ...]]:
    """Infer the nodes whose inputs are known, so that forms can show columns while others are incomplete."""
    scope = Scope(catalog.streams, catalog.tables)
    waiting = {}
    for name, node in nodes.items():
        try:
            waiting[name] = _NODE.validate_python(node)
        except ValidationError:
            continue
    while True:
        known = [
            name
            for name, node in waiting.items()
            if all(InputRef.parse(each).node in scope.typed for each in node.reads().values())
        ]
        if not known:
            break
        for name in known:
            node = waiting.pop(name)
            scope.enter(name, tuple(map(InputRef.parse, node.reads().values())))
            try:
                typed = infer_node(node, scope)
                if typed is not None and not scope.failed:
                    scope.add(typed)
            except InvalidPlan:
                continue
    return {name: field_specs(one.schema) for name, one in scope.typed.items()}, tuple(scope.problems)
