"""Typed expressions: the parser's output, which backends compile.

Every node has its type and nullability, so backends need no type rules of their own. Plans travel between
processes: `__reduce__` makes pickling them several times as fast as the default of data classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from mavstream_protocol.schema import FieldType


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. `value` is None for NULL; timestamps are ints of microseconds."""

    value: int | float | bool | str | None
    type: FieldType

    @property
    def nullable(self) -> bool:
        """Whether the value is null."""
        return self.value is None

    def __reduce__(self) -> tuple[Callable[..., Literal], tuple[object, ...]]:
        return Literal, (self.value, self.type)


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column of the input, by its name in expressions (`x`, or `l.x` in a join)."""

    name: str
    type: FieldType
    nullable: bool

    def __reduce__(self) -> tuple[Callable[..., ColumnRef], tuple[object, ...]]:
        return ColumnRef, (self.name, self.type, self.nullable)


@dataclass(frozen=True, slots=True)
class Call:
    """A function or an SQL operator, by its canonical name (see `functions`)."""

    function: str
    arguments: tuple[Expression, ...]
    type: FieldType
    nullable: bool

    def __reduce__(self) -> tuple[Callable[..., Call], tuple[object, ...]]:
        return Call, (self.function, self.arguments, self.type, self.nullable)


Expression = Literal | ColumnRef | Call


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate function over the rows of a window and group; `argument` is None for `count(*)`."""

    function: str
    argument: Expression | None
    distinct: bool
    type: FieldType
    nullable: bool
    fraction: float | None = None
    """Of `quantile`: the share of the values that are below the result."""

    @property
    def state(self) -> AggregateCall:
        """What is kept of the rows; calls that differ in their fraction have the same state."""
        return self if self.fraction is None else replace(self, fraction=None)


@dataclass(frozen=True, slots=True)
class AggregateExpression:
    """An output column of an aggregate: a scalar expression over aggregate calls and grouping columns.

    In `result`, the column `#0`, `#1`, ... refers to the value of `calls[0]`, `calls[1]`, ...
    """

    result: Expression
    calls: tuple[AggregateCall, ...]


def references(expression: Expression) -> Iterator[str]:
    """Yield the names of the columns an expression reads, repeats included."""
    return (part.name for part in parts(expression) if isinstance(part, ColumnRef))


def parts(expression: Expression) -> Iterator[Expression]:
    """Yield an expression and everything that it consists of; in linear time, however deep it is."""
    waiting = [expression]
    while waiting:
        part = waiting.pop()
        yield part
        if isinstance(part, Call):
            waiting += part.arguments[::-1]


def distinct(expressions: Iterable[Expression]) -> Iterable[Expression]:
    """Return the expressions without repeats; columns with the same text share their expression."""
    return {id(expression): expression for expression in expressions}.values()
