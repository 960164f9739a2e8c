"""Syntax trees of expressions: their nodes, how deep they may be, and their text in error messages."""

from __future__ import annotations

from typing import NamedTuple

from mavstream_protocol.errors import ExpressionError

MAX_DEPTH = 64


class Tree(NamedTuple):
    """A part of an expression.

    The kind is `column`, `number`, `text`, `null`, `true`, `false`, `call`, `cast`, `try_cast`, `case`,
    `switch`, `star`, `distinct`, `interval`, or the canonical name of an operator.
    """

    kind: str
    value: str
    """The name of a column, function or type, or a constant; of an interval its microseconds."""
    operands: tuple[Tree, ...]
    depth: int
    parts: int
    """How many trees it consists of, itself included."""
    start: int
    end: int


class Part:
    """A piece of an expression as quoted in error messages; cut out only if there is an error."""

    __slots__ = ("_text", "_tree")

    def __init__(self, text: str, tree: Tree) -> None:
        self._text = text
        self._tree = tree

    def __str__(self) -> str:
        return shortened(self._text[self._tree.start : self._tree.end])


def shortened(text: str) -> str:
    """Shorten a text for use in an error message."""
    return text if len(text) <= 80 else f"{text[:77]}..."


def too_deep() -> ExpressionError:
    """Build the error for an expression that is nested beyond `MAX_DEPTH`."""
    return ExpressionError(
        "expression_too_deep",
        f"the expression is nested more than {MAX_DEPTH} levels deep; compute parts of it in a project below",
    )
