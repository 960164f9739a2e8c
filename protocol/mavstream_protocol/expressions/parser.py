"""Parses SQL text into typed scalar, predicate and aggregate expressions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from mavstream_protocol.errors import ExpressionError
from mavstream_protocol.expressions.binder import Binder, Columns
from mavstream_protocol.expressions.coercion import BOOL, coerce, is_null
from mavstream_protocol.expressions.functions import AGGREGATES
from mavstream_protocol.expressions.syntax import parse_syntax
from mavstream_protocol.expressions.syntax_tree import Tree, shortened, too_deep
from mavstream_protocol.expressions.typed import AggregateCall, AggregateExpression, ColumnRef, Expression
from mavstream_protocol.schema import Field, FieldType


def parse_scalar(text: str, columns: Mapping[str, Field]) -> Expression:
    """Parse an expression over the rows of one input; keys of `columns` are names such as `x` or `l.x`.

    Raises ExpressionError with a code and a text for people, and nothing else.
    """
    return ExpressionParser(columns).scalar(text)


def parse_predicate(text: str, columns: Mapping[str, Field]) -> Expression:
    """Parse an expression that must be bool."""
    return ExpressionParser(columns).predicate(text)


def parse_aggregate(text: str, columns: Mapping[str, Field], by: Collection[str]) -> AggregateExpression:
    """Parse an output of an aggregate; outside aggregate calls only columns of `by` are allowed.

    Equal calls appear once in `calls`.
    """
    return ExpressionParser(columns).aggregate(text, by)


class ExpressionParser:
    """Parses expressions over one set of columns; equal texts are parsed once."""

    def __init__(
        self,
        columns: Mapping[str, Field],
        trees: dict[str, Tree] | None = None,
        count_parts: Callable[[int], None] = lambda parts: None,
    ) -> None:
        """Parsers of one plan share `trees`, the syntax trees by text, and count the parts that are typed."""
        self._columns = Columns(columns)
        self._trees = {} if trees is None else trees
        self._count_parts = count_parts
        self._binder = Binder(self._columns)
        self._scalars: dict[str, Expression] = {}

    def scalar(self, text: str) -> Expression:
        """Parse an expression over the rows of one input; raises ExpressionError."""
        known = self._scalars.get(text)
        if known is None:
            known = self._scalars[text] = self._bound(text, self._binder)
        else:
            self._count_parts(self._trees[text].parts)
        return known

    def predicate(self, text: str) -> Expression:
        """Parse an expression that must be bool; raises ExpressionError."""
        return coerce(self.scalar(text), BOOL, shortened(text), "write a comparison such as `x > 0`")

    def aggregate(self, text: str, by: Collection[str]) -> AggregateExpression:
        """Parse an output of an aggregate; raises ExpressionError."""
        binder = _AggregateBinder(self._columns, by)
        result = self._bound(text, binder)
        if not binder.calls and not binder.grouped:
            raise ExpressionError(
                "aggregate_required",
                f"`{shortened(text)}` uses no aggregate and no grouping column; use one such as count(*)",
            )
        return AggregateExpression(result, tuple(binder.calls))

    def _bound(self, text: str, binder: Binder) -> Expression:
        try:
            tree = self._trees.get(text)
            if tree is None:
                tree = self._trees[text] = parse_syntax(text)
            self._count_parts(tree.parts)
            return binder.bind(tree, text)
        except RecursionError:  # the caller's own stack is deep
            raise too_deep() from None


class _AggregateBinder(Binder):
    """Binds aggregate calls to columns `#0`, `#1`, ... of their results."""

    def __init__(self, columns: Columns, by: Collection[str]) -> None:
        super().__init__(columns)
        self._by = by
        self._arguments = Binder(columns)
        # A dict used as an ordered set: the index of a call is its number.
        self.calls: dict[AggregateCall, int] = {}
        self.grouped = False

    def column(self, tree: Tree) -> Expression:
        """Return a reference to a grouping column."""
        name = self.column_name(tree)
        if name not in self._by:
            keys = ", ".join(self._by) or "nothing"
            raise ExpressionError(
                "not_grouped",
                f"`{self.part(tree)}` is neither aggregated nor a grouping column (these are {keys}); "
                f"add it to `by` or use an aggregate such as first({name})",
            )
        self.grouped = True
        return super().column(tree)

    def aggregate(self, name: str, tree: Tree) -> Expression:
        """Return a reference to the result of an aggregate call."""
        call = self._aggregate_call(name, tree)
        number = self.calls.setdefault(call, len(self.calls))
        return ColumnRef(f"#{number}", call.type, call.nullable)

    def _aggregate_call(self, name: str, tree: Tree) -> AggregateCall:
        aggregate = AGGREGATES[name]
        part, arguments = self.part(tree), tree.operands
        if name == "count" and (not arguments or arguments[0].kind == "star") and len(arguments) < 2:
            return AggregateCall(name, None, False, FieldType.INT, False)
        if len(arguments) != aggregate.arguments:
            noun = "argument" if aggregate.arguments == 1 else "arguments"
            raise ExpressionError(
                "wrong_arguments",
                f"`{part}`: {name} takes {aggregate.arguments} {noun}, found {len(arguments)}",
            )
        distinct = arguments[0].kind == "distinct"
        if distinct:
            arguments = arguments[0].operands
            if name != "count" or len(arguments) != 1:
                raise ExpressionError(
                    "unsupported_syntax", f"`{part}`: DISTINCT works as count(DISTINCT x) only; leave it out"
                )
        argument = self._arguments.bind(arguments[0], self._text)
        if aggregate.takes is not None and not (argument.type in aggregate.takes or is_null(argument)):
            expected = " or ".join(sorted(aggregate.takes))
            raise ExpressionError(
                "type_mismatch",
                f"`{part}`: expected {expected} as argument of {name}, found {argument.type}; "
                "use count, min, max, first or last, or CAST the argument",
            )
        if name == "median":
            return AggregateCall("quantile", argument, False, FieldType.FLOAT, True, 0.5)
        fraction = self._fraction(arguments[1]) if name == "quantile" else None
        type_ = argument.type if aggregate.gives is None else aggregate.gives
        # Aggregates skip nulls and may be left without values; only counts are never null.
        return AggregateCall(name, argument, distinct, type_, name != "count", fraction)

    def _fraction(self, tree: Tree) -> float:
        """Return the constant second argument of a quantile."""
        if tree.kind == "number":
            fraction = float(tree.value)
            if 0 <= fraction <= 1:
                return fraction + 0.0
        raise ExpressionError(
            "wrong_arguments",
            f"expected a constant from 0 to 1 as the second argument of quantile, got `{self.part(tree)}`; "
            "write for example quantile(x, 0.95)",
        )
