"""Parses SQL text into typed scalar, predicate and aggregate expressions."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlglot import exp

from mavstream_protocol.errors import ExpressionError
from mavstream_protocol.expressions.binder import Binder
from mavstream_protocol.expressions.coercion import BOOL, coerce, is_null
from mavstream_protocol.expressions.functions import AGGREGATES
from mavstream_protocol.expressions.syntax import Part, parse_syntax, shortened
from mavstream_protocol.expressions.tokens import too_deep
from mavstream_protocol.expressions.typed import AggregateCall, AggregateExpression, ColumnRef, Expression
from mavstream_protocol.schema import Field, FieldType


def parse_scalar(text: str, columns: Mapping[str, Field]) -> Expression:
    """Parse an expression over the rows of one input; keys of `columns` are names such as `x` or `l.x`.

    Raises ExpressionError with a code and a text for people, and nothing else.
    """
    return _bound(text, columns, Binder(columns))


def parse_predicate(text: str, columns: Mapping[str, Field]) -> Expression:
    """Parse an expression that must be bool."""
    expression = parse_scalar(text, columns)
    return coerce(expression, BOOL, shortened(text), "write a comparison such as `x > 0`")


def parse_aggregate(text: str, columns: Mapping[str, Field], by: Collection[str]) -> AggregateExpression:
    """Parse an output of an aggregate; outside aggregate calls only columns of `by` are allowed.

    Equal calls appear once in `calls`.
    """
    binder = _AggregateBinder(columns, by)
    result = _bound(text, columns, binder)
    if not binder.calls and not binder.grouped:
        raise ExpressionError(
            "aggregate_required",
            f"`{shortened(text)}` uses no aggregate and no grouping column; use one such as count(*)",
        )
    return AggregateExpression(result, tuple(binder.calls))


def _bound(text: str, columns: Mapping[str, Field], binder: Binder) -> Expression:
    tree = parse_syntax(text, columns)
    try:
        return binder.bind(tree)
    except RecursionError:
        raise too_deep() from None


class _AggregateBinder(Binder):
    """Binds aggregate calls to columns `#0`, `#1`, ... of their results."""

    def __init__(self, columns: Mapping[str, Field], by: Collection[str]) -> None:
        super().__init__(columns)
        self._by = by
        self._arguments = Binder(columns)
        # A dict used as an ordered set: the index of a call is its number.
        self.calls: dict[AggregateCall, int] = {}
        self.grouped = False

    def column(self, node: exp.Expr) -> Expression:
        """Return a reference to a grouping column."""
        name = self.column_name(node)
        if name not in self._by:
            keys = ", ".join(self._by) or "nothing"
            raise ExpressionError(
                "not_grouped",
                f"`{Part(node)}` is neither aggregated nor a grouping column (these are {keys}); "
                f"add it to `by` or use an aggregate such as first({name})",
            )
        self.grouped = True
        return super().column(node)

    def aggregate(self, name: str, node: exp.Expr) -> Expression:
        """Return a reference to the result of an aggregate call."""
        call = self._call(name, node)
        number = self.calls.setdefault(call, len(self.calls))
        return ColumnRef(f"#{number}", call.type, call.nullable)

    def _call(self, name: str, node: exp.Expr) -> AggregateCall:
        aggregate = AGGREGATES[name]
        part = Part(node)
        arguments = list(node.expressions)
        if name == "count" and (not arguments or isinstance(arguments[0], exp.Star)) and len(arguments) < 2:
            return AggregateCall(name, None, False, FieldType.INT, False)
        if len(arguments) != 1:
            raise ExpressionError(
                "wrong_arguments", f"`{part}`: {name} takes 1 argument, found {len(arguments)}"
            )
        distinct = isinstance(arguments[0], exp.Distinct)
        if distinct:
            arguments = arguments[0].expressions
            if name != "count" or len(arguments) != 1:
                raise ExpressionError(
                    "unsupported_syntax", f"`{part}`: DISTINCT works as count(DISTINCT x) only; leave it out"
                )
        argument = self._arguments.bind(arguments[0])
        if aggregate.takes is not None and not (argument.type in aggregate.takes or is_null(argument)):
            expected = " or ".join(sorted(aggregate.takes))
            raise ExpressionError(
                "type_mismatch",
                f"`{part}`: expected {expected} as argument of {name}, found {argument.type}; "
                "use count, min, max, first or last, or CAST the argument",
            )
        type_ = argument.type if aggregate.gives is None else aggregate.gives
        # Aggregates skip nulls and may be left without values; only counts are never null.
        return AggregateCall(name, argument, distinct, type_, name != "count")
