"""Binds syntax trees to the columns of an input, resulting in typed expressions."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping

from sqlglot import exp

from mavstream_protocol.errors import ExpressionError
from mavstream_protocol.expressions.coercion import FLOAT, INT, STRING, explicit_cast, timestamp_literal
from mavstream_protocol.expressions.conversions import INT_MAX, INT_MIN
from mavstream_protocol.expressions.functions import (
    AGGREGATE_ALIASES,
    AGGREGATES,
    ALIASES,
    FUNCTIONS,
    OPERATORS,
    unknown_function,
)
from mavstream_protocol.expressions.syntax import Part
from mavstream_protocol.expressions.typed import ColumnRef, Expression, Literal
from mavstream_protocol.schema import Field, FieldType

_BINARY: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "//",
    exp.Mod: "%",
    exp.DPipe: "||",
}

_TYPES = {
    exp.DType.INT: INT,
    exp.DType.BIGINT: INT,
    exp.DType.FLOAT: FLOAT,
    exp.DType.DOUBLE: FLOAT,
    exp.DType.BOOLEAN: FieldType.BOOL,
    exp.DType.TEXT: STRING,
    exp.DType.VARCHAR: STRING,
    exp.DType.TIMESTAMP: FieldType.TIMESTAMP,
    exp.DType.TIMESTAMPNTZ: FieldType.TIMESTAMP,
}


class Binder:
    """Types the nodes of one expression; trees are at most `MAX_DEPTH` deep, so it may recurse."""

    def __init__(self, columns: Mapping[str, Field]) -> None:
        self._columns = columns
        self._rules: dict[type[exp.Expr], Callable[[exp.Expr], Expression]] = {
            exp.Paren: lambda node: self.bind(node.this),
            exp.Literal: _literal,
            exp.Null: lambda node: Literal(None, INT),
            exp.Boolean: lambda node: Literal(bool(node.this), FieldType.BOOL),
            exp.Column: self.column,
            exp.And: self._connector,
            exp.Or: self._connector,
            exp.Not: lambda node: self._operator("not", node, node.this),
            exp.Neg: self._negation,
            exp.Is: self._is,
            exp.Between: self._between,
            exp.In: self._in,
            exp.Like: self._like,
            exp.Escape: self._escape,
            exp.Case: self._case,
            exp.Cast: self._cast,
            exp.TryCast: self._cast,
            exp.Anonymous: self._function,
            **dict.fromkeys(_BINARY, self._binary),
        }

    def bind(self, node: exp.Expr) -> Expression:
        """Return the typed form of a node."""
        rule = self._rules.get(type(node))
        if rule is None:
            raise _unsupported(node)
        return rule(node)

    def column(self, node: exp.Expr) -> Expression:
        """Return a reference to the column with a name."""
        field_name = self.column_name(node)
        field = self._columns[field_name]
        return ColumnRef(field_name, field.type, field.nullable)

    def aggregate(self, name: str, node: exp.Expr) -> Expression:
        """Return the expression that represents an aggregate call; scalar binders reject such calls."""
        raise ExpressionError(
            "aggregate_not_allowed",
            f"`{Part(node)}`: {name} is an aggregate and cannot stand here; compute it in an aggregate node",
        )

    def column_name(self, node: exp.Expr) -> str:
        """Return the key of a column by name: an exact match, else the only one that differs in case."""
        parts = [node.args.get(part) for part in ("catalog", "db", "table", "this")]
        if isinstance(node.this, exp.Star):
            raise _unsupported(node)
        name = ".".join(part.name for part in parts if part is not None)
        if name in self._columns:
            return name
        alike = [key for key in self._columns if key.lower() == name.lower()]
        if len(alike) == 1:
            return alike[0]
        raise ExpressionError("unknown_field", _unknown_field(name, alike, list(self._columns)))

    def _operator(self, name: str, node: exp.Expr, *operands: exp.Expr) -> Expression:
        return OPERATORS[name].call(tuple(self.bind(operand) for operand in operands), Part(node))

    def _binary(self, node: exp.Expr) -> Expression:
        return self._operator(_BINARY[type(node)], node, node.this, node.expression)

    def _connector(self, node: exp.Expr) -> Expression:
        # A chain arrives as a left-deep tree as long as the text allows: gather it without recursion.
        operands: list[exp.Expr] = []
        left: exp.Expr = node
        while type(left) is type(node):
            operands.append(left.expression)
            left = left.this
        operands.append(left)
        return self._operator("and" if isinstance(node, exp.And) else "or", node, *reversed(operands))

    def _negation(self, node: exp.Expr) -> Expression:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return _number(f"-{node.this.this}")
        return self._operator("negate", node, node.this)

    def _is(self, node: exp.Expr) -> Expression:
        right = node.expression
        if isinstance(right, exp.Null):
            return self._operator("is_null", node, node.this)
        if isinstance(right, exp.Boolean):
            return self._operator("is_true" if right.this else "is_false", node, node.this)
        raise _unsupported(node)

    def _between(self, node: exp.Expr) -> Expression:
        if node.args.get("symmetric"):
            raise _unsupported(node)
        return self._operator("between", node, node.this, node.args["low"], node.args["high"])

    def _in(self, node: exp.Expr) -> Expression:
        if not node.expressions or any(node.args.get(key) for key in ("query", "unnest", "field")):
            raise _unsupported(node, "write the values as a list in parentheses")
        return self._operator("in", node, node.this, *node.expressions)

    def _like(self, node: exp.Expr, *escape: exp.Expr) -> Expression:
        like = self._operator("like", node, node.this, node.expression, *escape)
        return OPERATORS["not"].call((like,), Part(node)) if node.args.get("negate") else like

    def _escape(self, node: exp.Expr) -> Expression:
        inner, escape = node.this, node.expression
        negated = isinstance(inner, exp.Not)
        like = inner.this if negated else inner
        if not isinstance(like, exp.Like) or not (escape.is_string and len(escape.this) == 1):
            raise _unsupported(node, "ESCAPE takes one character in quotes")
        found = self._like(like, escape)
        return OPERATORS["not"].call((found,), Part(node)) if negated else found

    def _case(self, node: exp.Expr) -> Expression:
        choices = [
            self.bind(part) for branch in node.args["ifs"] for part in (branch.this, branch.args["true"])
        ]
        default = node.args.get("default")
        choices.append(Literal(None, INT) if default is None else self.bind(default))
        if node.this is None:
            return OPERATORS["case"].call(tuple(choices), Part(node))
        return OPERATORS["switch"].call((self.bind(node.this), *choices), Part(node))

    def _cast(self, node: exp.Expr) -> Expression:
        target = _TYPES.get(node.args["to"].this)
        if target is None or node.args.get("format"):
            raise _unsupported(node)
        failsafe = isinstance(node, exp.TryCast)
        if target is FieldType.TIMESTAMP and not failsafe and node.this.is_string:
            return timestamp_literal(node.this.this)
        return explicit_cast(self.bind(node.this), target, Part(node), failsafe=failsafe)

    def _function(self, node: exp.Expr) -> Expression:
        name = str(node.this).lower()
        aggregate = AGGREGATE_ALIASES.get(name, name)
        if aggregate in AGGREGATES:
            return self.aggregate(aggregate, node)
        arguments = tuple(self.bind(argument) for argument in node.expressions)
        if name == "if":
            return self._if(arguments, node)
        function = FUNCTIONS.get(ALIASES.get(name, name))
        if function is None:
            raise unknown_function(name)
        return function.call(arguments, Part(node))

    def _if(self, arguments: tuple[Expression, ...], node: exp.Expr) -> Expression:
        if len(arguments) != 3:
            raise ExpressionError(
                "wrong_arguments", f"`{Part(node)}`: if takes 3 arguments, found {len(arguments)}"
            )
        return OPERATORS["case"].call(arguments, Part(node))


def _literal(node: exp.Expr) -> Expression:
    return Literal(str(node.this), STRING) if node.is_string else _number(str(node.this))


def _number(text: str) -> Literal:
    """Read a number: whole ones are ints, those with a point or an exponent floats."""
    if text.lstrip("-").isdecimal():
        if len(text) > 20 or not INT_MIN <= int(text) <= INT_MAX:
            raise ExpressionError(
                "invalid_literal", f"{text} does not fit into 64 bits; write it as a float, such as {text}.0"
            )
        return Literal(int(text), INT)
    try:
        value = float(text)
    except ValueError:
        raise ExpressionError("invalid_literal", f"{text} is not a number; write one such as 1.5") from None
    if not math.isfinite(value):
        raise ExpressionError("invalid_literal", f"{text} is beyond the largest float, 1.797e308; write less")
    return Literal(value, FLOAT)


def _unsupported(node: exp.Expr, advice: str = "see the list of operators and functions") -> ExpressionError:
    return ExpressionError("unsupported_syntax", f"`{Part(node)}` cannot be used in an expression; {advice}")


def _unknown_field(name: str, alike: list[str], known: list[str]) -> str:
    sides = alike or [key for key in known if key.lower().endswith(f".{name.lower()}")]
    if sides:
        return f"there is no field `{name}`; write {' or '.join(f'`{key}`' for key in sides)}"
    close = difflib.get_close_matches(name, known, n=3)
    if close:
        return f"there is no field `{name}`; did you mean {' or '.join(f'`{key}`' for key in close)}?"
    listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
    return f"there is no field `{name}`; known are {listed or 'none'}"
