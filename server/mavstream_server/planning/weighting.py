"""Weighting: rewrites scaled aggregates as sums over a hidden column with the weights of rows.

Where load is shed, a row that remains with probability p represents w = 1/p rows of its stream. Then
sum(w x) is an unbiased estimate, and sum((w² - w) x²) estimates its variance (Horvitz and Thompson, 1952). So
scaled aggregates are plain sums over a hidden weight column, which sources add and select, project, split and
union pass on. While nothing is shed, w is 1 and the errors are 0.
"""

from __future__ import annotations

from dataclasses import replace

from mavstream_protocol.expressions.coercion import cast
from mavstream_protocol.expressions.typed import (
    AggregateCall,
    AggregateExpression,
    Call,
    ColumnRef,
    Expression,
    Literal,
)
from mavstream_protocol.schema import Field, FieldType
from mavstream_protocol.typed_plan import TypedAggregate, TypedPlan, all_below
from mavstream_server.operators.shedding.shedder import WEIGHT

_DEVIATIONS = 1.96  # 95 % of a normal distribution lie within so many standard deviations
_ROUNDING = 1e-14  # relative rounding error of squares that nearly cancel out
_FLOAT = FieldType.FLOAT
_WEIGHT = ColumnRef(WEIGHT, _FLOAT, False)


def weighted(plan: TypedPlan) -> TypedPlan:
    """Return the plan with scaled aggregates replaced by weighted sums; a plan without any is unchanged."""
    scaled = plan.scaled
    if not scaled:
        return plan
    carriers = {below.name for node in scaled for below in all_below(plan.nodes, node.inputs[0])}
    weight = Field(WEIGHT, _FLOAT)
    nodes = {name: node.carrying(weight) if name in carriers else node for name, node in plan.nodes.items()}
    for node in scaled:
        nodes[node.name] = _summing(node)
    return replace(plan, nodes=nodes)


def _summing(node: TypedAggregate) -> TypedAggregate:
    """Replace the values and errors of a scaled aggregate by weighted sums."""
    compute = []
    pairs = zip(node.compute[::2], node.compute[1::2], strict=True)
    for (name, value), (companion, _) in pairs:
        scaled, error = _scaled(value.calls[0])
        compute += [(name, scaled), (companion, error)]
    return replace(node, compute=tuple(compute), scaled=False)


def _scaled(call: AggregateCall) -> tuple[AggregateExpression, AggregateExpression]:
    """Return the scaled value of a call and its error."""
    x = call.argument
    spread = _times(_WEIGHT, _minus(_WEIGHT, _number(1.0)))
    weights, spreads = (_sum(each if x is None else _counted(x, each)) for each in (_WEIGHT, spread))
    if call.function == "count":
        return _over(_call(0), weights), _over(_within(_call(0)), spreads)
    assert x is not None
    x = cast(x, _FLOAT)
    # The spread comes first: while it is 0, nothing overflows.
    first = _times(spread, x)
    total, squares = _sum(_times(_WEIGHT, x)), _sum(_times(first, x))
    if call.function == "sum":
        return _over(_call(0), total), _over(_within(_call(0)), squares)
    mean = _divided(_call(0), _call(1))
    # sum((w² - w) (x - mean)²), multiplied out: the variance of a ratio of sums, times the square of its
    # denominator.
    variance = _plus(
        _minus(_times(_call(2), _number(1 + _ROUNDING)), _times(_number(2.0), _times(mean, _call(3)))),
        _times(mean, _times(mean, _call(4))),
    )
    distance = _divided(_within(Call("greatest", (variance, _number(0.0)), _FLOAT, True)), _call(1))
    return _over(mean, total, weights), _over(distance, total, weights, squares, _sum(first), spreads)


def _over(result: Expression, *calls: AggregateCall) -> AggregateExpression:
    return AggregateExpression(result, calls)


def _sum(argument: Expression) -> AggregateCall:
    return AggregateCall("sum", argument, False, _FLOAT, True)


def _counted(x: Expression, weight: Expression) -> Expression:
    """Return a weight that is 0 where x is null, so that nulls do not count."""
    missing = Call("is_null", (x,), FieldType.BOOL, False)
    return Call("case", (missing, _number(0.0), weight), _FLOAT, weight.nullable)


def _within(variance: Expression) -> Expression:
    return _times(_number(_DEVIATIONS), Call("sqrt", (variance,), _FLOAT, True))


def _call(number: int) -> Expression:
    return ColumnRef(f"#{number}", _FLOAT, True)


def _number(value: float) -> Expression:
    return Literal(value, _FLOAT)


def _times(left: Expression, right: Expression) -> Expression:
    return Call("*", (left, right), _FLOAT, True)


def _plus(left: Expression, right: Expression) -> Expression:
    return Call("+", (left, right), _FLOAT, True)


def _minus(left: Expression, right: Expression) -> Expression:
    return Call("-", (left, right), _FLOAT, True)


def _divided(left: Expression, right: Expression) -> Expression:
    return Call("/", (left, right), _FLOAT, True)
