"""Syntax: expression text to the SQL grammar's tree, within limits of length, depth and time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from threading import Lock
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ErrorLevel, ParseError
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import Token

from mavstream_protocol.errors import ExpressionError
from mavstream_protocol.expressions.tokens import MAX_DEPTH, tokenize, too_deep

MAX_LENGTH = 4096

# Stack frames that the grammar needs for `MAX_DEPTH` levels (about 30 each, measured) above any caller.
_FRAMES = 60 * MAX_DEPTH
_recursion_limit = Lock()


class _Grammar(DuckDBParser):
    """The SQL grammar without its own function table: functions are checked by `functions`."""

    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS = {  # noqa: RUF012
        name: DuckDBParser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST")
    }
    NO_PAREN_FUNCTION_PARSERS = {  # noqa: RUF012
        "CASE": DuckDBParser.NO_PAREN_FUNCTION_PARSERS["CASE"]
    }


def parse_syntax(text: str, names: Collection[str]) -> exp.Expr:
    """Return the syntax tree of one expression, at most `MAX_DEPTH` deep.

    `names` are the columns there are, so that one may be called like an SQL word.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(
            "expression_too_long",
            f"the expression has {len(text)} characters, at most {MAX_LENGTH} are allowed; "
            "compute parts of it in a project below",
        )
    tokens = tokenize(text, {name.lower() for key in names for name in (key, *key.split("."))})
    if not tokens:
        raise ExpressionError("syntax_error", "the expression is empty; write one such as `temperature > 30`")
    tree = _parse(tokens, text)
    _check_depth(tree)
    return tree


class Part:
    """A piece of an expression as quoted in error messages; formatted only if there is an error."""

    __slots__ = ("_node",)

    def __init__(self, node: exp.Expr) -> None:
        self._node = node

    def __str__(self) -> str:
        try:
            return shortened(self._node.sql(dialect="duckdb", normalize_functions=False))
        except RecursionError:
            return "..."


def shortened(text: str) -> str:
    """Shorten a text for use in an error message."""
    return text if len(text) <= 80 else f"{text[:77]}..."


def _parse(tokens: list[Token], text: str) -> exp.Expr:
    try:
        return _parse_once(tokens, text)
    except RecursionError:
        # Nesting is known to be limited, but the interpreter's own limit is lower than the grammar needs.
        with _recursion_limit:
            limit = sys.getrecursionlimit()
            sys.setrecursionlimit(limit + _FRAMES)
            try:
                return _parse_once(tokens, text)
            except RecursionError:
                raise too_deep() from None
            finally:
                sys.setrecursionlimit(limit)


def _parse_once(tokens: list[Token], text: str) -> exp.Expr:
    grammar = _Grammar(error_level=ErrorLevel.IMMEDIATE, dialect=DuckDB())
    try:
        trees = grammar.parse_into(exp.Condition, tokens, text)
    except ParseError as error:
        raise _syntax_error(text, error) from error
    if len(trees) != 1 or trees[0] is None:
        raise ExpressionError("syntax_error", f"`{text}` is not one expression; write one")
    return trees[0]


def _syntax_error(text: str, error: ParseError) -> ExpressionError:
    first = error.errors[0] if error.errors else {}
    near = f" at `{first['highlight']}`" if first.get("highlight") else ""
    # The grammar's own words name its classes where an operand is missing.
    missing = str(first.get("description", "")).startswith("Required")
    reason = "something is missing here" if missing else "this does not fit here"
    return ExpressionError(
        "syntax_error", f"cannot read `{shortened(text)}`{near}: {reason}; check operators and parentheses"
    )


def _check_depth(tree: exp.Expr) -> None:
    """Measure the tree without recursion; parentheses and chains of AND or OR cost nothing."""
    stack = [(tree, 1)]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise too_deep()
        for child in node.iter_expressions():
            chain = isinstance(child, exp.Connector) and type(child) is type(node)
            flat = isinstance(child, (exp.Paren, exp.If, exp.Identifier, exp.DataType, exp.Distinct))
            stack.append((child, depth if chain or flat else depth + 1))
