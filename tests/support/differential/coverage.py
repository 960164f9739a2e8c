"""Coverage: which kinds of operators, windows and aggregates a set of cases exercised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.support.differential.cases import Case

from mavstream_protocol.expressions.typed import AggregateCall
from mavstream_protocol.plans.windows import RowWindow, TimeWindow
from mavstream_protocol.schema import FieldType
from mavstream_protocol.typed_plan import (
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
    TypedUnion,
)

_WINDOWS = tuple(
    f"{axis} {kind}"
    for axis in ("time", "rows")
    for kind in ("tumbling", "overlapping", "hop = size", "hop > size", "begin", "until")
)
_WINDOWED = ("aggregate", "distinct", "except", "join")
_NUMERIC = (FieldType.INT, FieldType.FLOAT)
KINDS: frozenset[str] = frozenset(
    {
        *("source by event time", "source by arrival", "select", "project", "split", "split else"),
        *("union", "union ordered", "aggregate by", "aggregate without by"),
        *("join within", "join before/after", "join window", "join where", "join without keys"),
        *("join computed", "join all columns", "join ordered", "join of one stream", "node read twice"),
        *(f"{operator} over {window}" for operator in _WINDOWED for window in _WINDOWS),
        *(f"{name}({type_})" for name in ("sum", "avg", "stddev", "quantile") for type_ in _NUMERIC),
        *(f"{n}({t})" for n in ("count", "distinct", "min", "max", "first", "last") for t in FieldType),
        *(f"aggregate over sessions{bound}" for bound in ("", " begin", " until")),
        *("count(*)", "aggregate combined", *(f"{depth} operators deep" for depth in range(1, 6))),
    }
)
"""Every kind that a large set of cases must exercise."""


def kinds_of(case: Case) -> set[str]:
    """Return the kinds that a case exercises."""
    plan = case.typed()
    found = {kind for node in plan.nodes.values() for kind in _node_kinds(node, plan)}
    reads = Counter(reference for node in plan.nodes.values() for reference in node.inputs)
    if max(reads.values(), default=0) > 1:
        found.add("node read twice")
    if any(reference.output == "else" for reference in (*reads, plan.root)):
        found.add("split else")
    return found | {f"{_depth(plan, plan.root.node)} operators deep"}


def _depth(plan: TypedPlan, name: str) -> int:
    inputs = plan.nodes[name].inputs
    return 1 + max(_depth(plan, reference.node) for reference in inputs) if inputs else 0


def _node_kinds(node: TypedNode, plan: TypedPlan) -> Iterator[str]:
    match node:
        case TypedSource():
            yield "source by arrival" if node.event_time is None else "source by event time"
        case TypedSelect():
            yield "select"
        case TypedProject():
            yield "project"
        case TypedSplit():
            yield "split"
        case TypedUnion():
            yield "union ordered" if node.ordered else "union"
        case TypedExcept():
            yield from _window_kinds("except", node.window)
        case TypedDistinct():
            yield from _window_kinds("distinct", node.window)
        case TypedSessions():
            yield from _session_kinds(node)
        case TypedAggregate():
            yield from _aggregate_kinds(node)
        case TypedJoin():
            yield from _join_kinds(node, plan)


def _session_kinds(node: TypedSessions) -> Iterator[str]:
    yield "aggregate over sessions"
    for bound in ("begin", "until"):
        if getattr(node.window, bound) is not None:
            yield f"aggregate over sessions {bound}"
    yield from _computed_kinds(node)


def _aggregate_kinds(node: TypedAggregate) -> Iterator[str]:
    yield from _window_kinds("aggregate", node.window)
    yield from _computed_kinds(node)


def _computed_kinds(node: TypedAggregate | TypedSessions) -> Iterator[str]:
    yield "aggregate by" if node.by else "aggregate without by"
    for _, expression in node.compute:
        yield from (_call_kind(call) for call in expression.calls)
        if len(expression.calls) > 1:
            yield "aggregate combined"


def _call_kind(call: AggregateCall) -> str:
    if call.argument is None:
        return "count(*)"
    return f"{'distinct' if call.distinct else call.function}({call.argument.type})"


def _join_kinds(node: TypedJoin, plan: TypedPlan) -> Iterator[str]:
    if node.within is not None:
        yield "join within" if node.within.before == node.within.after else "join before/after"
    if node.window is not None:
        yield "join window"
        yield from _window_kinds("join", node.window)
    if node.where is not None:
        yield "join where"
    if not node.on:
        yield "join without keys"
    if node.ordered:
        yield "join ordered"
    yield "join computed" if node.compute[0][0].startswith("j") else "join all columns"
    left, right = (_streams(plan, reference.node) for reference in node.inputs)
    if left & right:
        yield "join of one stream"


def _streams(plan: TypedPlan, name: str) -> set[str]:
    node = plan.nodes[name]
    if isinstance(node, TypedSource):
        return {node.stream}
    return {stream for reference in node.inputs for stream in _streams(plan, reference.node)}


def _window_kinds(operator: str, window: TimeWindow | RowWindow) -> Iterator[str]:
    over = f"{operator} over {'time' if isinstance(window, TimeWindow) else 'rows'}"
    if window.kind == "tumbling":
        yield f"{over} tumbling"
    elif window.step < window.size:
        yield f"{over} overlapping"
    else:
        yield f"{over} hop = size" if window.step == window.size else f"{over} hop > size"
    if window.begin is not None:
        yield f"{over} begin"
    if window.until is not None:
        yield f"{over} until"
