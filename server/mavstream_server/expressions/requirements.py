"""Requirements of predicates: comparisons with constants that hold in every row which a predicate passes.

They tell without evaluating the whole predicate that it passes none of a few rows. Parts of a predicate that
are no such comparisons are left out, so that a row which meets all requirements may still fail it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from mavstream_protocol.expressions.typed import Call, ColumnRef, Expression, Literal
from mavstream_protocol.schema import FieldType
from mavstream_server.columns.column import DTYPES, Array, Column, Mask
from mavstream_server.columns.dictionary import Dictionary
from mavstream_server.expressions.comparison import MIRRORED, UFUNCS

_ORDERED = (FieldType.INT, FieldType.FLOAT, FieldType.TIMESTAMP)


class Requirement(NamedTuple):
    """A comparison of a column, on the left, with a constant."""

    column: str
    function: str
    type: FieldType
    value: Any

    @property
    def form(self) -> tuple[str, str, FieldType]:
        """What it has in common with requirements that differ in the constant only."""
        return self[:3]


def requirements(predicate: Expression) -> tuple[Requirement, ...]:
    """Return the requirements of a predicate, in its order; none if it has no such parts."""
    return tuple(_found(predicate))


def _found(expression: Expression) -> Iterator[Requirement]:
    if not isinstance(expression, Call):
        return
    arguments = expression.arguments
    if expression.function == "and":
        for argument in arguments:
            yield from _found(argument)
    elif expression.function == "between":
        value, low, high = arguments
        yield from _compared(">=", value, low)
        yield from _compared("<=", value, high)
    elif expression.function in UFUNCS:
        left, right = arguments
        if isinstance(left, Literal):
            yield from _compared(MIRRORED[expression.function], right, left)
        else:
            yield from _compared(expression.function, left, right)


def _compared(function: str, left: Expression, right: Expression) -> Iterator[Requirement]:
    if not isinstance(left, ColumnRef) or not isinstance(right, Literal):
        return
    if right.value is None or left.type is not right.type:
        return
    if left.type in _ORDERED or (left.type is FieldType.STRING and function == "="):
        yield Requirement(left.name, function, left.type, right.value)


class RequirementTable:
    """The requirements of several predicates that differ in their constants only.

    A batch of rows is compared with all of them in one call per requirement.
    """

    def __init__(self, several: Sequence[tuple[Requirement, ...]]) -> None:
        """All of them have the same forms, at least one."""
        self._constants = [_Constants(column) for column in zip(*several, strict=True)]
        self.columns = tuple({constants.column for constants in self._constants})
        """The columns that are compared."""

    def may_pass(self, columns: dict[str, Column]) -> Mask:
        """Return for each predicate whether it may pass any of the rows."""
        met: Mask | None = None
        for constants in self._constants:
            column = columns[constants.column]
            same = constants.ufunc(column.values, constants.values(column))
            if column.valid is not None:
                # A part that is null decides nothing: another one may fail in that row, which is counted.
                same |= ~column.valid
            met = same if met is None else np.logical_and(met, same, out=met)
        assert met is not None
        found: Mask = met[:, 0] if met.shape[1] == 1 else np.logical_or.reduce(met, axis=1)
        return found


class _Constants:
    """The constants of one requirement of several predicates, one below the other."""

    def __init__(self, several: Sequence[Requirement]) -> None:
        self.column, function, self._type, _ = several[0]
        self.ufunc = UFUNCS[function]
        self._given = [each.value for each in several]
        self._codes_of: tuple[Dictionary | None, int] = (None, 0)
        self._values: Array = np.empty((0, 1))
        if self._type is not FieldType.STRING:
            self._values = _below_each_other(self._given, self._type)

    def values(self, column: Column) -> Array:
        """Return the constants as the column has them: texts as codes, of which -1 is none."""
        dictionary = column.dictionary
        if dictionary is not None and self._codes_of != (dictionary, len(dictionary)):
            self._codes_of = dictionary, len(dictionary)
            self._values = _below_each_other([dictionary.code(text) for text in self._given], self._type)
        return self._values


def _below_each_other(values: Sequence[Any], type_: FieldType) -> Array:
    return np.array(values, dtype=DTYPES[type_])[:, None]
