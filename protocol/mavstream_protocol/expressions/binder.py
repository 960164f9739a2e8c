"""Binds syntax trees to the columns of an input, resulting in typed expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from mavstream_protocol.errors import ExpressionError
from mavstream_protocol.expressions.coercion import FLOAT, INT, STRING, explicit_cast, timestamp_literal
from mavstream_protocol.expressions.conversions import INT_MAX, INT_MIN
from mavstream_protocol.expressions.functions import (
    AGGREGATE_ALIASES,
    AGGREGATES,
    ALIASES,
    FUNCTIONS,
    OPERATORS,
)
from mavstream_protocol.expressions.syntax_tree import Part, Tree
from mavstream_protocol.expressions.tokens import LEFT_OUT, TYPE_NAMES, unsupported_word
from mavstream_protocol.expressions.typed import ColumnRef, Expression, Literal
from mavstream_protocol.names import closest
from mavstream_protocol.schema import Field, FieldType


class Columns(dict[str, Field]):
    """The columns that expressions can read, by names such as `x` or `l.x`, found in any case."""

    def __init__(self, columns: Mapping[str, Field]) -> None:
        super().__init__(columns)
        self._alike: dict[str, list[str]] | None = None  # names by their lower case, built when needed

    def alike(self, name: str) -> list[str]:
        """Return the names that differ from a name at most in case."""
        if self._alike is None:
            self._alike = {}
            for key in self:
                self._alike.setdefault(key.lower(), []).append(key)
        return self._alike.get(name.lower(), [])


class Binder:
    """Types expressions over one set of columns; trees are at most `MAX_DEPTH` deep, so it may recurse."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._text = ""
        self._references: dict[str, ColumnRef] = {}
        self._rules: dict[str, Callable[[Tree], Expression]] = {
            "column": self.column,
            "number": lambda tree: _number(tree.value),
            "text": lambda tree: Literal(tree.value, STRING),
            "null": lambda tree: Literal(None, INT),
            "true": lambda tree: Literal(True, FieldType.BOOL),
            "false": lambda tree: Literal(False, FieldType.BOOL),
            "like": self._like,
            "ilike": self._ilike,
            "+": self._sum,
            "-": self._sum,
            "interval": self._misplaced_interval,
            "cast": self._cast,
            "try_cast": self._cast,
            "call": self._call,
            "star": self._unsupported,
            "distinct": self._unsupported,
        }

    def bind(self, tree: Tree, text: str) -> Expression:
        """Return the typed form of an expression; errors quote its text."""
        self._text = text
        return self._bind(tree)

    def column(self, tree: Tree) -> Expression:
        """Return a reference to the column with a name."""
        known = self._references.get(tree.value)
        if known is None:
            name = self.column_name(tree)
            field = self._columns[name]
            known = self._references[tree.value] = ColumnRef(name, field.type, field.nullable)
        return known

    def aggregate(self, name: str, tree: Tree) -> Expression:
        """Return the expression that represents an aggregate call; scalar binders reject such calls."""
        raise ExpressionError(
            "aggregate_not_allowed",
            f"`{self.part(tree)}`: {name} is an aggregate and cannot stand here; compute it in an aggregate "
            "node",
        )

    def column_name(self, tree: Tree) -> str:
        """Return the key of a column by name: an exact match, else the only one that differs in case."""
        name = tree.value
        if name in self._columns:
            return name
        alike = self._columns.alike(name)
        if len(alike) == 1:
            return alike[0]
        if name.lower() in LEFT_OUT and self._text[tree.start] != '"':
            raise unsupported_word(name)
        if self._text[tree.start] == '"' and not alike:
            detail = f"there is no field `{name}`; use single quotes for text: '{name}'"
        else:
            detail = _unknown_field(name, alike, list(self._columns))
        raise ExpressionError("unknown_field", detail)

    def part(self, tree: Tree) -> Part:
        """Return the text of a tree, for error messages."""
        return Part(self._text, tree)

    def _bind(self, tree: Tree) -> Expression:
        rule = self._rules.get(tree.kind)
        if rule is not None:
            return rule(tree)
        return OPERATORS[tree.kind].call(self._operands(tree), Part(self._text, tree))

    def _operands(self, tree: Tree) -> tuple[Expression, ...]:
        return tuple([self._bind(operand) for operand in tree.operands])

    def _like(self, tree: Tree) -> Expression:
        if len(tree.operands) == 3:
            escape = tree.operands[2]
            if escape.kind != "text" or len(escape.value) != 1:
                raise self._unsupported_error(tree, "ESCAPE takes one character in quotes")
        return OPERATORS["like"].call(self._operands(tree), self.part(tree))

    def _ilike(self, tree: Tree) -> Expression:
        """Bind ILIKE as LIKE of lower-case texts."""
        text, pattern, *escape = tree.operands
        if escape and escape[0].value.lower() != escape[0].value.upper():
            raise self._unsupported_error(tree, "the ESCAPE of ILIKE cannot be a letter")
        lower = (Tree("call", "lower", (each,), *each[3:]) for each in (text, pattern))
        return self._like(tree._replace(kind="like", operands=(*lower, *escape)))

    def _sum(self, tree: Tree) -> Expression:
        """Bind + and -, where an interval moves a timestamp."""
        left, right = tree.operands
        if tree.kind == "+" and left.kind == "interval":
            left, right = right, left
        if right.kind != "interval":
            return OPERATORS[tree.kind].call(self._operands(tree), self.part(tree))
        microseconds = int(right.value) if tree.kind == "+" else -int(right.value)
        return OPERATORS["shift"].call((self._bind(left), Literal(microseconds, INT)), self.part(tree))

    def _misplaced_interval(self, tree: Tree) -> Expression:
        raise self._unsupported_error(
            tree, "add an interval to a timestamp or subtract it, as in `at - INTERVAL '1' SECOND`"
        )

    def _cast(self, tree: Tree) -> Expression:
        target, failsafe, (operand,) = TYPE_NAMES[tree.value.lower()], tree.kind == "try_cast", tree.operands
        if target is FieldType.TIMESTAMP and not failsafe and operand.kind == "text":
            return timestamp_literal(operand.value)
        return explicit_cast(self._bind(operand), target, self.part(tree), failsafe=failsafe)

    def _call(self, tree: Tree) -> Expression:
        name = tree.value
        aggregate = AGGREGATE_ALIASES.get(name, name)
        if aggregate in AGGREGATES:
            return self.aggregate(aggregate, tree)
        arguments = self._operands(tree)
        if name == "if":
            return self._if(arguments, tree)
        return FUNCTIONS[ALIASES.get(name, name)].call(arguments, self.part(tree))

    def _if(self, arguments: tuple[Expression, ...], tree: Tree) -> Expression:
        if len(arguments) != 3:
            raise ExpressionError(
                "wrong_arguments", f"`{self.part(tree)}`: if takes 3 arguments, found {len(arguments)}"
            )
        return OPERATORS["case"].call(arguments, self.part(tree))

    def _unsupported(self, tree: Tree) -> Expression:
        raise self._unsupported_error(tree, "see the list of operators and functions")

    def _unsupported_error(self, tree: Tree, advice: str) -> ExpressionError:
        return ExpressionError(
            "unsupported_syntax", f"`{self.part(tree)}` cannot be used in an expression; {advice}"
        )


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


def _unknown_field(name: str, alike: list[str], known: list[str]) -> str:
    sides = alike or [key for key in known if key.lower().endswith(f".{name.lower()}")]
    if sides:
        return f"there is no field `{name}`; write {' or '.join(f'`{key}`' for key in sides)}"
    close = closest(name, known, 3)
    if close:
        return f"there is no field `{name}`; did you mean {' or '.join(f'`{key}`' for key in close)}?"
    listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
    return f"there is no field `{name}`; known are {listed or 'none'}"
