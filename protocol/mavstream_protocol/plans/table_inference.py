"""Inference of joins with stored tables."""

from __future__ import annotations

from dataclasses import replace

from mavstream_protocol.errors import InvalidPlan, ProblemItem
from mavstream_protocol.plans.inference_scope import Scope, field_of
from mavstream_protocol.plans.plan import InputRef, JoinNode, Plan
from mavstream_protocol.schema import Schema
from mavstream_protocol.typed_plan import TypedNode, TypedTable, TypedTableJoin, all_below


def check_table_readers(plan: Plan) -> None:
    """Raise InvalidPlan if a table is read other than as the right side of a join."""
    pointed = [("root", InputRef.parse(plan.root))]
    for name, node in plan.nodes.items():
        pointed += [
            (f"nodes/{name}/{field}", reference)
            for field, reference in plan.inputs(name).items()
            if field not in node.table_fields
        ]
    problems = [
        ProblemItem(
            pointer=pointer,
            code="table_not_joined",
            detail=f"{reference.node!r} is a table, and no rows flow out of a table: let it be the `right` "
            "of a join with a stream",
        )
        for pointer, reference in pointed
        if not plan.nodes[reference.node].gives_rows
    ]
    if problems:
        raise InvalidPlan(problems)


def infer_table_join(node: JoinNode, table: TypedTable, scope: Scope) -> TypedNode | None:
    """Return the typed join of the first input with a table, the second; or None after recording errors."""
    _check_left(scope)
    _check_options(node, scope)
    for index, (left, right) in enumerate(node.on):
        scope.check_key(f"on/{index}", left, right)
    left_columns, right_columns = scope.columns(0, "l."), scope.columns(1, "r.")
    where = None
    if node.where is not None:
        where = scope.predicate("where", node.where, scope.parser({**left_columns, **right_columns}))
    # The condition only sees matched rows, so table columns become nullable after it.
    if node.how == "left":
        right_columns = {name: replace(field, nullable=True) for name, field in right_columns.items()}
    compute, parser = [], scope.parser({**left_columns, **right_columns})
    for name, text in (node.compute or _all_columns(node, scope)).items():
        expression = scope.scalar(f"compute/{name}", text, parser)
        if expression is not None:
            compute.append((name, expression))
    return TypedTableJoin(
        scope.name,
        scope.inputs[:1],
        Schema(tuple(field_of(name, expression) for name, expression in compute)),
        table.table,
        table.schema,
        node.on,
        node.how == "left",
        where,
        tuple(compute),
    )


def _check_left(scope: Scope) -> None:
    """Reject input rows without an arrival time: no table version is defined for the rows of a window."""
    for below in all_below(scope.typed, scope.inputs[0]):
        if below.windowed:
            scope.fail(
                "left",
                "table_above_window",
                f"a row joins the version of a table that was current when it arrived, and the rows of "
                f"{below.name!r} are made by a window: join the table below {below.name!r}",
            )
            return


def _check_options(node: JoinNode, scope: Scope) -> None:
    if not node.on:
        scope.fail(
            "on",
            "missing_keys",
            'a join with a table needs keys; write for example `"on": [["room", "room"]]`',
        )
    for name in ("within", "window"):
        if getattr(node, name) is not None:
            scope.fail(
                name,
                "not_with_table",
                f"the rows of a table have no time, so `{name}` says nothing about them; leave it out",
            )
    if node.order is not None:
        scope.fail(
            "order",
            "not_with_table",
            "a join with a table keeps the order of its left input; leave `order` out",
        )


def _all_columns(node: JoinNode, scope: Scope) -> dict[str, str]:
    """Name the columns of both sides, for a join without `compute`; a key with the same name appears once."""
    shared = {left for left, right in node.on if left == right}
    left, right = scope.schema(0).names, frozenset(scope.schema(1).names)
    for name in left:
        if name in right and name not in shared:
            scope.fail(
                "compute",
                "duplicate_column",
                f"both sides have a column {name!r}; name the result's columns in `compute`, "
                f'for example `"table_{name}": "r.{name}"`',
            )
    taken = {name: f'r."{name}"' for name in scope.schema(1).names if name not in shared}
    return {**{name: f'l."{name}"' for name in left}, **taken}
