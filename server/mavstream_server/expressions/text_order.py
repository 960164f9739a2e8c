"""Comparisons of texts: by code for equality, by rank for order."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mavstream_server.columns.column import Array, Column, both_valid
from mavstream_server.expressions.errors import RowErrors
from mavstream_server.expressions.operands import Columns, Evaluator

_ORDERINGS: dict[str, Callable[[str, str], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
# Above this many texts, one lookup per row is faster than one comparison per text.
_FEW = 3


def looked_up(column: Column, table: Array) -> Array:
    """Return the table's entry for each row's code; zero if the dictionary has no text at all."""
    return table.take(column.values) if len(table) else np.zeros(len(column.values), dtype=table.dtype)


def compare_with_text(name: str, inner: Evaluator, text: str) -> Evaluator:
    """Compare a column with a constant; equality is one comparison of codes."""
    if name in ("=", "<>"):
        ufunc = np.equal if name == "=" else np.not_equal

        def equality(columns: Columns, size: int, errors: RowErrors) -> Column:
            column = inner(columns, size, errors)
            assert column.dictionary is not None
            return Column(ufunc(column.values, column.dictionary.code(text)), column.valid)

        return equality
    ordering = _ORDERINGS[name]

    def compute(texts: list[str]) -> Array:
        return np.array([ordering(candidate, text) for candidate in texts], dtype=np.bool_)

    def order(columns: Columns, size: int, errors: RowErrors) -> Column:
        column = inner(columns, size, errors)
        assert column.dictionary is not None
        return Column(looked_up(column, column.dictionary.memo((name, text), compute)), column.valid)

    return order


def text_membership(inner: Evaluator, texts: Sequence[str]) -> Evaluator:
    """Test whether a column's texts are among constants."""
    wanted = frozenset(texts)
    key = ("in", wanted)

    def compute(candidates: list[str]) -> Array:
        return np.array([candidate in wanted for candidate in candidates], dtype=np.bool_)

    def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
        column = inner(columns, size, errors)
        assert column.dictionary is not None
        if len(wanted) > _FEW:
            return Column(looked_up(column, column.dictionary.memo(key, compute)), column.valid)
        code = column.dictionary.code
        found = np.zeros(size, dtype=np.bool_)
        for text in wanted:
            if (number := code(text)) >= 0:
                found |= column.values == number
        return Column(found, column.valid)

    return evaluate


def compare_text_columns(
    ufunc: Callable[[Any, Any], Array], first: Evaluator, second: Evaluator
) -> Evaluator:
    """Compare two columns."""
    equality = ufunc in (np.equal, np.not_equal)

    def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
        a, b = first(columns, size, errors), second(columns, size, errors)
        valid = both_valid(a.valid, b.valid)
        if equality and a.dictionary is b.dictionary:
            return Column(ufunc(a.values, b.values), valid)
        left, right = ranks((a, b))
        return Column(ufunc(left, right), valid)

    return evaluate


def ranks(columns: Sequence[Column]) -> list[Array]:
    """Return for each row of each column the rank of its text among the texts that occur."""
    used: list[tuple[list[str], Array]] = []
    for column in columns:
        assert column.dictionary is not None
        texts = column.dictionary.values
        codes, inverse = np.unique(column.values, return_inverse=True)
        # Rows of an empty dictionary are all null, so any rank is correct.
        used.append(([texts[code] if texts else "" for code in codes.tolist()], inverse))
    order = {text: rank for rank, text in enumerate(sorted({text for texts, _ in used for text in texts}))}
    return [
        np.array([order[text] for text in texts], dtype=np.int64).take(inverse) for texts, inverse in used
    ]
