"""Schema inference: computes and checks the schema of every node of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import singledispatch

from mavstream_protocol.errors import InvalidPlan, ProblemItem
from mavstream_protocol.plans import plan as nodes
from mavstream_protocol.plans.budget import check_columns
from mavstream_protocol.plans.graph import bottom_up, unknown
from mavstream_protocol.plans.inference_scope import Scope, field_of
from mavstream_protocol.plans.plan import InputRef, Node, Plan
from mavstream_protocol.plans.scaling import scale
from mavstream_protocol.plans.table_inference import check_table_readers, infer_table_join
from mavstream_protocol.plans.windows import RowWindow, SessionWindow
from mavstream_protocol.schema import Field, Schema
from mavstream_protocol.typed_plan import (
    ORDER_SENSITIVE,
    StreamShape,
    TypedAggregate,
    TypedDistinct,
    TypedExcept,
    TypedJoin,
    TypedNode,
    TypedPlan,
    TypedProject,
    TypedSelect,
    TypedSessions,
    TypedSource,
    TypedSplit,
    TypedTable,
    TypedUnion,
)


def infer(
    plan: Plan, streams: Mapping[str, StreamShape], tables: Mapping[str, Schema] | None = None
) -> TypedPlan:
    """Return the typed plan; raises InvalidPlan with every error that was found."""
    # Before anything is parsed: inference also counts the columns that nodes add by themselves.
    check_columns(sum(len(getattr(node, "compute", None) or ()) for node in plan.nodes.values()))
    scope = Scope(streams, tables or {})
    order = bottom_up(plan)
    check_table_readers(plan)
    for name in order:
        inputs = tuple(plan.inputs(name).values())
        if all(reference.node in scope.typed for reference in inputs):
            scope.enter(name, inputs)
            typed = infer_node(plan.nodes[name], scope)
            if typed is not None and not scope.failed:
                scope.add(replace(typed, hints=getattr(plan.nodes[name], "hints", None)))
    if scope.problems:
        raise InvalidPlan(scope.problems)
    return TypedPlan(scope.typed, InputRef.parse(plan.root))


def check_one_time(plan: TypedPlan) -> None:
    """Reject a one-time query whose end would be undefined: it needs exactly one last windowed node."""
    node = plan.one_time_node
    if not node.windowed:
        detail = (
            "a one-time query ends with the first window that closes, so one windowed node must stand "
            f"below the root with only select, project and split above it; got {node.name!r}"
        )
        item = ProblemItem(pointer=f"nodes/{node.name}", code="one_time_needs_window", detail=detail)
        raise InvalidPlan([item])


@singledispatch
def infer_node(node: Node, scope: Scope) -> TypedNode | None:
    """Return the typed node, or None after recording errors; every node class registers its own rule."""
    raise AssertionError(f"no rule for {type(node).__name__}")


@infer_node.register
def _source(node: nodes.SourceNode, scope: Scope) -> TypedNode | None:
    shape = scope.streams.get(node.origin)
    if shape is None or not (shape.is_stream if node.query is None else shape.is_query):
        _unknown_source(node, scope, shape)
        return None
    scope.fed_by[scope.name] = frozenset({node.origin})
    return TypedSource(
        scope.name, (), shape.schema, node.origin, shape.event_time, shape.query, shape.in_order
    )


def _unknown_source(node: nodes.SourceNode, scope: Scope, shape: StreamShape | None) -> None:
    kind, other = ("stream", "query") if node.query is None else ("query", "stream")
    if shape is not None:
        detail = f'{node.origin!r} is a {other}, not a {kind}: write `"{other}": "{node.origin}"`'
    else:
        shapes = scope.streams.items()
        known = [name for name, one in shapes if (one.is_stream if kind == "stream" else one.is_query)]
        detail = unknown(kind, node.origin, known)
    scope.fail(kind, f"unknown_{kind}", detail)


@infer_node.register
def _table(node: nodes.TableNode, scope: Scope) -> TypedNode | None:
    schema = scope.tables.get(node.table)
    if schema is None:
        scope.fail("table", "unknown_table", unknown("table", node.table, list(scope.tables)))
        return None
    return TypedTable(scope.name, (), schema, node.table)


@infer_node.register
def _select(node: nodes.SelectNode, scope: Scope) -> TypedNode | None:
    where = scope.predicate("where", node.where, scope.parser())
    return None if where is None else TypedSelect(scope.name, scope.inputs, scope.schema(), where)


@infer_node.register
def _project(node: nodes.ProjectNode, scope: Scope) -> TypedNode | None:
    compute, parser = [], scope.parser()
    for name, text in node.compute.items():
        expression = scope.scalar(f"compute/{name}", text, parser)
        if expression is not None:
            compute.append((name, expression))
    schema = Schema(tuple(field_of(name, expression) for name, expression in compute))
    return TypedProject(scope.name, scope.inputs, schema, tuple(compute))


@infer_node.register
def _split(node: nodes.SplitNode, scope: Scope) -> TypedNode | None:
    if nodes.ELSE in node.outputs:
        scope.fail(
            f"outputs/{nodes.ELSE}",
            "reserved_name",
            f"{nodes.ELSE!r} is the output of the rows that no predicate matches; choose another name",
        )
    outputs = []
    for name, text in node.outputs.items():
        predicate = scope.predicate(f"outputs/{name}", text, scope.parser())
        if predicate is not None:
            outputs.append((name, predicate))
    return TypedSplit(scope.name, scope.inputs, scope.schema(), tuple(outputs))


@infer_node.register
def _union(node: nodes.UnionNode, scope: Scope) -> TypedNode | None:
    for index in range(1, len(scope.inputs)):
        scope.same_columns(f"inputs/{index}", index)
    if node.order == "time":
        for index in range(len(scope.inputs)):
            scope.need_order("order", "a merge by time, input and position", index)
    schemas = {id(schema): schema for schema in map(scope.schema, range(len(scope.inputs)))}
    nullable = {field.name for schema in schemas.values() for field in schema if field.nullable}
    schema, *others = schemas.values()
    if others:
        schema = Schema(tuple(Field(field.name, field.type, field.name in nullable) for field in schema))
    return TypedUnion(scope.name, scope.inputs, schema, node.order == "time")


@infer_node.register
def _except(node: nodes.ExceptNode, scope: Scope) -> TypedNode | None:
    scope.same_columns("right", 1)
    if isinstance(node.window, RowWindow):
        for index, side in enumerate(("left", "right")):
            scope.need_order(side, "a window by rows", index)
    added = scope.window_columns(node.window, scope.schema().names)
    return TypedExcept(scope.name, scope.inputs, Schema((*scope.schema(), *added)), node.window)


@infer_node.register
def _distinct(node: nodes.DistinctNode, scope: Scope) -> TypedNode | None:
    if isinstance(node.window, RowWindow):
        scope.need_order("window", "a window by rows")
    added = scope.window_columns(node.window, scope.schema().names)
    return TypedDistinct(scope.name, scope.inputs, Schema((*scope.schema(), *added)), node.window)


@infer_node.register
def _aggregate(node: nodes.AggregateNode, scope: Scope) -> TypedNode | None:
    columns = scope.columns()
    by: list[Field] = []
    for index, name in enumerate(node.by):
        if name not in columns:
            scope.fail(f"by/{index}", "unknown_field", unknown("field", name, list(columns)))
        elif name in node.by[:index]:
            scope.fail(f"by/{index}", "duplicate_column", f"{name!r} stands twice in `by`; leave one out")
        else:
            by.append(columns[name])
    compute = []
    for name, text in node.compute.items():
        pointer = f"compute/{name}"
        if name in node.by:
            scope.fail(
                pointer, "duplicate_column", f"{name!r} is a grouping column already; choose another name"
            )
        expression = scope.aggregate(pointer, text, node.by)
        if expression is None:
            continue
        for call in expression.calls:
            if call.function in ORDER_SENSITIVE:
                scope.need_order(pointer, f"{call.function}()")
        compute.append((name, expression))
    if isinstance(node.window, RowWindow):
        scope.need_order("window", "a window by rows")
    if node.scaled:
        compute = scale(node, compute, scope)
    added = scope.window_columns(node.window, [*node.by, *node.compute])
    schema = Schema((*by, *(field_of(name, e.result) for name, e in compute), *added))
    if isinstance(node.window, SessionWindow):
        return TypedSessions(scope.name, scope.inputs, schema, node.window, node.by, tuple(compute))
    return TypedAggregate(scope.name, scope.inputs, schema, node.window, node.by, tuple(compute), node.scaled)


@infer_node.register
def _join(node: nodes.JoinNode, scope: Scope) -> TypedNode | None:
    other = scope.typed[scope.inputs[1].node]
    if isinstance(other, TypedTable):
        return infer_table_join(node, other, scope)
    if node.how != "inner":
        scope.fail(
            "how",
            "table_required",
            f"a join of two streams is inner, got {node.how!r}; only a join with a table can be left",
        )
    if (node.within is None) == (node.window is None):
        scope.fail(
            "",
            "invalid_window",
            "a join needs either `within` (how far apart the rows may be in time) or `window`, not "
            + ("both" if node.window else "none"),
        )
    for index, (left, right) in enumerate(node.on):
        scope.check_key(f"on/{index}", left, right)
    if isinstance(node.window, RowWindow):
        for index, side in enumerate(("left", "right")):
            scope.need_order(side, "a window by rows", index)
    if node.order == "time":
        for index, side in enumerate(("left", "right")):
            scope.need_order(side, "an order by time and position", index)
    pairs = scope.parser({**scope.columns(0, "l."), **scope.columns(1, "r.")})
    where = None if node.where is None else scope.predicate("where", node.where, pairs)
    compute = []
    for name, text in (node.compute or _all_columns(scope)).items():
        expression = scope.scalar(f"compute/{name}", text, pairs)
        if expression is not None:
            compute.append((name, expression))
    fields = [field_of(name, expression) for name, expression in compute]
    if node.window is not None:
        fields += scope.window_columns(node.window, [name for name, _ in compute])
    return TypedJoin(
        scope.name,
        scope.inputs,
        Schema(tuple(fields)),
        node.on,
        node.within,
        node.window,
        where,
        tuple(compute),
        node.order == "time",
    )


def _all_columns(scope: Scope) -> dict[str, str]:
    """Name the columns of both sides, for a join that computes none."""
    left, right = scope.schema(0).names, scope.schema(1).names
    taken = frozenset(right)
    for name in left:
        if name in taken:
            scope.fail(
                "compute",
                "duplicate_column",
                f"both sides have a column {name!r}; name the result's columns in `compute`, "
                f'for example `"left_{name}": "l.{name}"`',
            )
    return {**{n: f'l."{n}"' for n in left}, **{n: f'r."{n}"' for n in right}}
