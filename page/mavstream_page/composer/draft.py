"""A query that is being composed: as SQL, or as operators whose fields are texts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from mavstream import AsyncClient
from mavstream_protocol import InvalidObject, Plan
from mavstream_protocol.errors import ProblemItem
from mavstream_protocol.plans.inference import infer
from mavstream_protocol.sql import Catalog, parse_select, plan_to_sql
from mavstream_protocol.streams import FieldSpec
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_protocol.wire.resources import Validation

Texts = dict[str, str]
"""The fields of an operator by name, as they are typed."""

FIELDS: dict[str, tuple[str, ...]] = {
    "source": ("stream",),
    "table": ("table",),
    "select": ("input", "where"),
    "project": ("input", "compute"),
    "aggregate": ("input", "by", "window", "compute"),
    "distinct": ("input", "window"),
    "join": ("left", "right", "on", "within", "where", "compute"),
    "union": ("inputs",),
}
"""The operators that steps offer, with their fields; others are kept as they are."""

_JSON = "json"
"""The only field of operators that steps do not offer."""


class Draft:
    """The composed query: its text or its steps, and the result of checking it."""

    def __init__(self) -> None:
        self.mode = "sql"
        self.sql = ""
        self.steps: dict[str, tuple[str, Texts]] = {}
        """Operator and fields by name, inputs first; the last one is the answer."""
        self.plan: Plan | None = None
        """The plan, if it could be read."""
        self.errors: tuple[ProblemItem, ...] = ()
        """Why there is no plan, or why it is not valid; those of SQL have a line and a column."""
        self.schemas: dict[str, tuple[FieldSpec, ...]] = {}
        """The columns of each node."""
        self.validation: Validation | None = None
        self.catalog = Catalog()

    def read(self) -> None:
        """Read the plan and its columns from the text or the steps, without the server; never raises."""
        self.plan = self.validation = None
        self.schemas, self.errors = {}, ()
        try:
            self.plan = self._read()
            if self.plan is not None:
                self.schemas = _schemas(infer(self.plan, self.catalog.streams, self.catalog.tables))
        except InvalidObject as error:
            self.errors = tuple(error.items)
        except ValueError as error:
            self.refuse(str(error))

    def refuse(self, reason: str) -> None:
        """Say why it is not valid, where the reason has no place."""
        self.errors = (ProblemItem(pointer="", code="invalid", detail=reason),)

    async def validate(self, client: AsyncClient) -> None:
        """Let the server validate the plan and say what it will cost; raises MavstreamError."""
        plan = self.plan
        if plan is None or self.errors:
            return
        validation = await client.validate(plan)
        if self.plan is plan:
            self.validation, self.errors = validation, validation.errors
            self.schemas = dict(validation.schemas) or self.schemas

    @property
    def error(self) -> str | None:
        """Why there is no plan, or why it is not valid."""
        return "; ".join(each.detail for each in self.errors) or None

    @property
    def ready(self) -> bool:
        """Whether there is a plan without errors."""
        return self.plan is not None and not self.errors

    @property
    def wrong(self) -> frozenset[str]:
        """The nodes with errors."""
        parts = [each.pointer.strip("/").split("/") for each in self.errors]
        return frozenset(part[part.index("nodes") + 1] for part in parts if "nodes" in part[:-1])

    def to_steps(self) -> None:
        """Show the plan of the text as steps."""
        if self.plan is not None:
            self.steps = steps_of(self.plan)
        self.mode = "steps"

    def to_sql(self) -> None:
        """Show the steps as text; raises MavstreamError if they are no plan."""
        if self.plan is not None:
            self.sql = plan_to_sql(self.plan, self.catalog)
        self.mode = "sql"

    def put(self, plan: Plan) -> None:
        """Replace it by a plan, such as an imported one."""
        self.plan = plan
        self.steps = steps_of(plan)
        if self.mode == "sql":
            self.to_sql()

    def add(self, op: str) -> None:
        """Append an operator that reads the last one."""
        names = list(self.steps)
        name = next(
            f"{op}{number or ''}" for number in range(1000) if f"{op}{number or ''}" not in self.steps
        )
        texts = dict.fromkeys(FIELDS[op], "")
        if names:
            for field in ("input", "left", "inputs"):
                if field in texts:
                    texts[field] = names[-1]
        if "window" in texts:
            texts["window"] = "tumbling 1s"
        self.steps[name] = (op, texts)

    def remove(self, name: str) -> None:
        """Remove an operator; those that read it read its first input instead."""
        _, texts = self.steps.pop(name)
        below = texts.get("input") or texts.get("left") or ""
        for _, others in self.steps.values():
            for field in ("input", "left", "right", "inputs"):
                if others.get(field) == name:
                    others[field] = below

    def _read(self) -> Plan | None:
        if self.mode == "sql":
            return parse_select(self.sql, self.catalog) if self.sql.strip() else None
        if not self.steps:
            return None
        nodes = {name: node_of(op, texts) for name, (op, texts) in self.steps.items()}
        return Plan.parse({"version": 1, "root": list(self.steps)[-1], "nodes": nodes})


def _schemas(plan: TypedPlan) -> dict[str, tuple[FieldSpec, ...]]:
    return {
        name: tuple(FieldSpec(name=one.name, type=one.type, nullable=one.nullable) for one in node.schema)
        for name, node in plan.nodes.items()
    }


def node_of(op: str, texts: Texts) -> dict[str, Any]:
    """Return a node of a plan from the texts of its fields; raises ValueError."""
    if _JSON in texts:
        return dict(json.loads(texts[_JSON]))
    given = {field: _READ.get(field, str)(text.strip()) for field, text in texts.items() if text.strip()}
    return {"op": op, **given}


def steps_of(plan: Plan) -> dict[str, tuple[str, Texts]]:
    """Return the steps of a plan, inputs first and the root last."""
    steps: dict[str, tuple[str, Texts]] = {}

    def visit(name: str) -> None:
        name = name.partition(".")[0]
        if name in steps or name not in plan.nodes:
            return
        node = plan.nodes[name]
        for below in node.reads().values():
            visit(below)
        given = node.model_dump(mode="json", exclude_none=True, exclude_defaults=True, by_alias=True)
        op = given.pop("op", node.op)
        fields = FIELDS.get(op)
        shown = {field: _text(field, value) for field, value in given.items()}
        if fields is None or not set(given) <= set(fields) or None in shown.values():
            steps[name] = (op, {_JSON: json.dumps({"op": op, **given})})
        else:
            steps[name] = (op, {field: shown.get(field) or "" for field in fields})

    visit(plan.root)
    return steps


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _pairs(text: str) -> list[list[str]]:
    pairs = [[side.strip() for side in part.partition("=")[::2]] for part in _listed(text)]
    return [[left, right or left] for left, right in pairs]


def _computed(text: str) -> dict[str, str]:
    made = {}
    for line in filter(None, map(str.strip, text.replace(";", "\n").split("\n"))):
        name, separator, expression = line.partition("=")
        if not separator:
            name, expression = line, line
        made[name.strip()] = expression.strip()
    return made


def _window(text: str) -> dict[str, str]:
    words = text.split()
    if len(words) < 2 or words[0] not in ("tumbling", "hopping"):
        raise ValueError(f"window {text!r}: expected 'tumbling SIZE' or 'hopping SIZE HOP', as 'tumbling 1s'")
    return {"kind": words[0], "size": words[1], **({"hop": words[2]} if len(words) > 2 else {})}


_READ: dict[str, Callable[[str], Any]] = {
    "by": _listed,
    "inputs": _listed,
    "on": _pairs,
    "compute": _computed,
    "window": _window,
}


def _text(field: str, value: Any) -> str | None:
    """Return a field as it is typed; None if it has no such form."""
    if isinstance(value, str):
        return value
    if field in ("by", "inputs") and isinstance(value, list):
        return ", ".join(value)
    if field == "on" and isinstance(value, list):
        return ", ".join(left if left == right else f"{left} = {right}" for left, right in value)
    if field == "compute" and isinstance(value, dict):
        return "\n".join(f"{name} = {expression}" for name, expression in value.items())
    if field == "within" and isinstance(value, dict) and value.get("before") == value.get("after"):
        return str(value["before"])
    if field == "window" and isinstance(value, dict) and set(value) <= {"kind", "size", "hop"}:
        return " ".join(str(value[key]) for key in ("kind", "size", "hop") if key in value)
    return None
