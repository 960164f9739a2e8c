"""Building of plans node by node; each node is type-checked when it is added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from mavstream_protocol.errors import InvalidPlan, InvalidSql
from mavstream_protocol.model_errors import causes, quoted, sentence
from mavstream_protocol.plans.hints import Hints
from mavstream_protocol.plans.inference import infer_node
from mavstream_protocol.plans.inference_scope import Scope
from mavstream_protocol.plans.plan import InputRef, Node, Plan
from mavstream_protocol.schema import Schema
from mavstream_protocol.sql.source import SqlSource
from mavstream_protocol.typed_plan import StreamShape

MAX_NODES = 256
_NODE: TypeAdapter[Node] = TypeAdapter(Node)
_LONGEST_NAME = 64
# Advice in the words of SQL, where that of inference is in the words of plans.
_ADVICE = {
    "order_required": "write `/*+ ORDER(time) */` behind the SELECT of the join or behind UNION ALL below",
    "aggregate_not_allowed": "compute it in a query with GROUP BY",
    "schema_mismatch": "name and CAST the columns alike on both sides",
    "missing_keys": "write for example ON l.room = r.room",
}

Span = tuple[int, int]
"""Start and end of a piece of the statement."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """The streams, queries and stored tables that queries can name; queries are among the streams."""

    streams: Mapping[str, StreamShape] = field(default_factory=dict)
    tables: Mapping[str, Schema] = field(default_factory=dict)


class PlanBuilder:
    """The nodes of a plan so far, with their schemas."""

    def __init__(self, source: SqlSource, catalog: Catalog) -> None:
        self.source = source
        self.catalog = catalog
        self._scope = Scope(catalog.streams, catalog.tables)
        self._nodes: dict[str, Node] = {}

    def add(
        self,
        op: str,
        name: str,
        span: Span,
        spans: Mapping[str, Span] | None = None,
        hints: Hints | None = None,
        **values: Any,
    ) -> str:
        """Add a node and return its name; `spans` are the places of its fields. Raises InvalidSql."""
        name = self._free_name(name)
        given = {key: value for key, value in values.items() if value is not None}
        if len(self._nodes) >= MAX_NODES:
            raise self.source.error(
                "plan_too_large", f"the plan has more than {MAX_NODES} nodes; split the query", *span
            )
        try:
            node = _NODE.validate_python({"op": op, **given} | ({"hints": hints} if hints else {}))
        except ValidationError as error:
            details = causes(error.errors())[0]
            where = _place("/".join(map(str, details["loc"][1:])), spans or {}, span)
            message = sentence(details, quoted(details, f"`{op}`"))
            raise self.source.error("invalid_value", message, *where) from None
        self._infer(name, node, hints, span, spans or {})
        self._nodes[name] = node
        return name

    def schema(self, node: str) -> Schema:
        """Return the columns of a node, or of an output of a split."""
        return self._scope.typed[InputRef.parse(node).node].schema

    def plan(self, root: str) -> Plan:
        """Return the plan with its root."""
        return Plan.model_validate({"root": root, "nodes": self._nodes})

    def _free_name(self, name: str) -> str:
        found, number = name, 1
        while found in self._nodes:
            number += 1
            suffix = f"_{number}"
            found = name[: _LONGEST_NAME - len(suffix)] + suffix
        return found

    def _infer(
        self, name: str, node: Node, hints: Hints | None, span: Span, spans: Mapping[str, Span]
    ) -> None:
        scope = self._scope
        scope.enter(name, tuple(map(InputRef.parse, node.reads().values())))
        try:
            typed = infer_node(node, scope)
            if typed is not None and not scope.failed:
                scope.add(replace(typed, hints=hints))
                return
        except InvalidPlan as error:
            raise self._located(error, name, span, spans) from None
        raise self._located(InvalidPlan(scope.problems), name, span, spans)

    def _located(self, error: InvalidPlan, name: str, span: Span, spans: Mapping[str, Span]) -> InvalidSql:
        item = error.items[0]
        where = _place(item.pointer.removeprefix(f"nodes/{name}").lstrip("/"), spans, span)
        detail = item.detail.replace("in a project below", "in a subquery")
        if item.code in _ADVICE:
            detail = f"{detail.rpartition('; ')[0] or detail}; {_ADVICE[item.code]}"
        return self.source.error_within(item.code, detail, *where)


def _place(pointer: str, spans: Mapping[str, Span], otherwise: Span) -> Span:
    """Return the place of a field, or of the field that it is part of."""
    while pointer:
        if pointer in spans:
            return spans[pointer]
        pointer = pointer.rpartition("/")[0]
    return otherwise
