"""Validation of query specifications: from JSON to a typed plan, with a pointer for every error."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

from pydantic import ValidationError

from mavstream_protocol.backends import SHORTEST_LATENCY, refused_by_runner
from mavstream_protocol.errors import InvalidObject, InvalidPlan, ProblemItem
from mavstream_protocol.model_errors import causes, quoted, sentence
from mavstream_protocol.plans.budget import check_bytes
from mavstream_protocol.plans.graph import unknown
from mavstream_protocol.plans.inference import check_one_time, infer
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.quantities import format_size
from mavstream_protocol.queries import Mode, OnError, QueryBackend, QuerySpec, SqlQuerySpec
from mavstream_protocol.schema import Schema
from mavstream_protocol.sql import Catalog, parse_select
from mavstream_protocol.streams import field_specs
from mavstream_protocol.typed_plan import StreamShape, TypedPlan
from mavstream_protocol.utility import infer_utility
from mavstream_protocol.wire.resources import Backend, Validation

_MAX_ITEMS = 100
_DUMMY_PLAN = Plan.parse({"root": "in", "nodes": {"in": {"op": "source", "stream": "none"}}})

Shapes = Mapping[str, StreamShape]
Tables = Mapping[str, Schema]
_NO_TABLES: Tables = {}
_NO_CATALOG = Catalog()
_NOT_ON_SPARK: Mapping[str, object] = {
    "mode": Mode.CONTINUOUS,
    "stop_at": None,
    "on_error": OnError.NULL,
    "derive": False,
}
"""Options that other backends do not have, with the values that they all have."""


class InvalidQuery(InvalidObject):
    """Raised for a query that cannot be registered."""

    code = "invalid_query"
    title = "The query is not valid"


def check_text(data: object) -> None:
    """Raise InvalidObject for JSON that cannot be stored: lone surrogates, nested too deeply, too long."""
    try:
        size = len(json.dumps(data, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        detail = "some text has half a surrogate pair: send whole characters"
        raise InvalidQuery([ProblemItem(pointer="body", code="invalid_text", detail=detail)]) from None
    except RecursionError:
        detail = "the object is nested too deep: a plan names its nodes instead of nesting them"
        raise InvalidQuery([ProblemItem(pointer="body", code="too_deep", detail=detail)]) from None
    check_bytes(size, "body")


def parse_spec(data: object, catalog: Catalog = _NO_CATALOG) -> QuerySpec:
    """Parse a query's specification, with a plan or as SQL over the streams and tables of a catalog.

    Raises InvalidQuery with a pointer per error (`plan/nodes/hot/op`), InvalidSql if the SQL alone is wrong.
    """
    if not isinstance(data, Mapping):
        raise InvalidQuery([_not_an_object("a query's specification is an object", data)])
    values = dict(data)
    wrong: InvalidObject | None = None
    if "sql" in values or "plan" in values:
        # The plan is parsed first, with its own messages; a placeholder lets the rest be validated.
        sql = values.pop("sql", None)
        given, values["plan"] = values.get("plan"), _DUMMY_PLAN
        try:
            values["plan"] = Plan.parse(given) if "sql" not in data else _plan_of_sql(sql, data, catalog)
        except InvalidPlan as error:
            wrong = InvalidQuery(list(_below_plan(error.items)))
        except InvalidObject as error:
            wrong = error
    items: list[ProblemItem] = []
    try:
        spec = QuerySpec.model_validate(values)
    except ValidationError as error:
        # The default of the name depends on the other values.
        found = (
            one
            for one in causes(error.errors(include_url=False))
            if one["type"] != "default_factory_not_called"
        )
        items += map(_item, found)
    if wrong is not None and not items:
        raise wrong
    if items:
        raise InvalidQuery([*(wrong.items if wrong else ()), *items][:_MAX_ITEMS])
    return spec


def _plan_of_sql(sql: object, data: Mapping[str, Any], catalog: Catalog) -> Plan:
    """Return the plan of a query that was sent as SQL; raises InvalidSql, InvalidQuery."""
    if "plan" in data:
        detail = "the query has both 'plan' and 'sql', which say the same: leave one of them out"
        raise InvalidQuery([ProblemItem(pointer="sql", code="plan_and_sql", detail=detail)])
    if not isinstance(sql, str):
        detail = f"'sql' must be the text of a SELECT, got {_shown(sql)}"
        raise InvalidQuery([ProblemItem(pointer="sql", code="invalid_value", detail=detail)])
    return parse_select(sql, catalog)


def changed(spec: QuerySpec, values: Mapping[str, Any]) -> QuerySpec:
    """Return a specification with other attribute values; raises InvalidQuery with a pointer per error."""
    before = dict(spec)
    if spec.memory_limit is not None:
        before["memory_limit"] = format_size(spec.memory_limit)  # a bare number would be refused
    try:
        return QuerySpec.model_validate({**before, **values})
    except ValidationError as error:
        raise InvalidQuery([_item(one) for one in causes(error.errors(include_url=False))]) from None


def type_plan(spec: QuerySpec, streams: Shapes, tables: Tables = _NO_TABLES) -> TypedPlan:
    """Infer all types of a query's plan; raises InvalidQuery with pointers below `plan`."""
    try:
        typed = infer(spec.plan, streams, tables)
        if spec.mode is Mode.ONE_TIME:
            check_one_time(typed)
    except InvalidPlan as error:
        raise InvalidQuery(list(_below_plan(error.items))) from None
    return typed


def check(
    spec: QuerySpec, streams: Shapes, has_class: Callable[[str], bool], tables: Tables = _NO_TABLES
) -> TypedPlan:
    """Return the typed plan of a query that can be registered; raises InvalidQuery with every error."""
    items: list[ProblemItem] = []
    typed = None
    if not has_class(spec.class_):
        items += unknown_class(spec.class_).items
    try:
        typed = type_plan(spec, streams, tables)
        infer_utility(spec.qos, typed)
    except InvalidObject as error:
        items += error.items
    else:
        items += check_backend(spec, typed)
    if typed is None or items:
        raise InvalidQuery(items)
    return typed


def check_backend(spec: QuerySpec, plan: TypedPlan) -> Iterator[ProblemItem]:
    """Yield what the backend of a query does not support."""
    if spec.backend is QueryBackend.EMBEDDED:
        return
    code, advice = "not_on_spark", "change it, or leave 'backend' out"
    for name, default in _NOT_ON_SPARK.items():
        if (value := getattr(spec, name)) != default:
            detail = f"'{name}' cannot be {_shown(_plain(value))} with backend 'spark': {advice}"
            yield ProblemItem(pointer=name, code=code, detail=detail)
    for reason in refused_by_runner(plan):
        node = reason.partition(":")[0]
        yield ProblemItem(
            pointer=f"plan/nodes/{node}", code=code, detail=f"backend 'spark': {reason}; {advice}"
        )


def could_move(spec: QuerySpec, plan: TypedPlan) -> bool:
    """Return whether a query of this server could run with backend `spark` and keep its latency target."""
    latency = spec.qos.latency
    if spec.backend is not QueryBackend.EMBEDDED or (latency and latency.at_most < SHORTEST_LATENCY):
        return False
    return not any(check_backend(spec.model_copy(update={"backend": QueryBackend.SPARK}), plan))


def plan_query(
    data: object,
    streams: Shapes,
    has_class: Callable[[str], bool],
    tables: Tables = _NO_TABLES,
    *,
    alone: bool = False,
) -> tuple[QuerySpec, TypedPlan]:
    """Parse and check a query from its JSON form; raises InvalidObject with every error.

    With `alone`, a plan may stand for a query of the default class without targets, and SQL needs no name.
    """
    check_text(data)
    if alone and isinstance(data, Mapping):
        if "nodes" in data and "plan" not in data:
            plan = Plan.parse(data)
            return QuerySpec(name="plan", plan=plan), infer(plan, streams, tables)
        if "sql" in data:
            data = {"name": "query", **data}
    spec = parse_spec(data, Catalog(streams, tables))
    return spec, check(spec, streams, has_class, tables)


def described(plan: TypedPlan) -> Validation:
    """Return the validation of a valid plan, without an estimate."""
    # Nodes that hand on the columns of their input share its schema.
    fields = {id(node.schema): node.schema for node in plan.nodes.values()}
    specs = {key: field_specs(schema) for key, schema in fields.items()}
    schemas = {name: specs[id(node.schema)] for name, node in plan.nodes.items()}
    return Validation.model_construct(
        valid=True, schemas=schemas, paths=plan.paths(), errors=(), backends=backends_of(plan)
    )


def backends_of(plan: TypedPlan) -> tuple[Backend, ...]:
    """Return the backends, each with what it refuses in a plan."""
    refused = refused_by_runner(plan)
    return (
        Backend(name="server", supported=True),
        Backend(name="spark", supported=not refused, reasons=refused),
    )


def fingerprint(data: object) -> str:
    """Return a hash of a JSON value; raises InvalidObject as `check_text` does."""
    check_text(data)
    # Not orjson: it rejects integers beyond 64 bits and lone surrogates, which clients may send.
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def unknown_class(name: str, pointer: str = "class") -> InvalidQuery:
    """Return the error for a class that does not exist."""
    how = f"create it with 'mavstream class set {name} PRIORITY', or leave 'class' out"
    detail = f"there is no class '{name}': {how}"
    return InvalidQuery([ProblemItem(pointer=pointer, code="unknown_class", detail=detail)])


def _below_plan(items: Iterable[ProblemItem]) -> Iterable[ProblemItem]:
    for item in items:
        pointer = "plan" if item.pointer == "plan" else f"plan/{item.pointer}"
        yield item.model_copy(update={"pointer": pointer})


def _not_an_object(expected: str, value: object) -> ProblemItem:
    detail = f"{expected}, got {_shown(value)}"
    return ProblemItem(pointer="body", code="not_an_object", detail=detail)


def _item(error: Any) -> ProblemItem:
    """Convert a pydantic error to a problem item."""
    path = [str(part) for part in error["loc"]]
    pointer, kind = "/".join(path) or "body", error["type"]
    if kind == "missing":
        what = "'plan' or 'sql'" if path == ["plan"] else f"'{path[-1]}'"
        return ProblemItem(pointer=pointer, code="missing_key", detail=f"{what} is required")
    if kind == "extra_forbidden":
        text = unknown("key", path[-1], _keys()) if len(path) == 1 else f"'{path[-1]}' is not known here"
        return ProblemItem(pointer=pointer, code="unknown_key", detail=f"{text}; leave it out")
    code = kind if "reason" in error.get("ctx", {}) else "invalid_value"
    return ProblemItem(pointer=pointer, code=code, detail=sentence(error, quoted(error, "the body")))


def _keys() -> list[str]:
    fields = {**QuerySpec.model_fields, **SqlQuerySpec.model_fields}
    return [field.alias or name for name, field in fields.items()]


def _plain(value: object) -> object:
    return value.value if isinstance(value, Enum) else value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
