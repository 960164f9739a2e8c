"""Registry of the functions and operators of expressions: arity, types and null handling.

Canonical names are the SQL spelling of operators and the lower-case name of functions. `case` takes
condition, value, ..., default; `switch` takes operand, value, result, ..., default; `like` takes text,
pattern and optionally the escape character; `date_trunc` takes the timestamp first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from mavstream_protocol.errors import ExpressionError
from mavstream_protocol.expressions.coercion import (
    BOOL,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP,
    cast,
    coerce,
    common_type,
    is_null,
    mismatch,
    unify,
)
from mavstream_protocol.expressions.typed import Call, Expression, Literal
from mavstream_protocol.names import closest
from mavstream_protocol.schema import FieldType

_NUMERIC = frozenset({INT, FLOAT})

Arguments = tuple[Expression, ...]
TypeRule = Callable[[Arguments, object], tuple[Arguments, FieldType]]


class Nulls(StrEnum):
    """When a result can be null; a row that fails counts as null, too."""

    ANY = "any"
    """If any argument is null."""
    FAILS = "fails"
    """If any argument is null, and in rows that fail or divide by zero."""
    ALL = "all"
    """Only where all arguments are null."""
    VALUES = "values"
    """If a value that can be chosen is null (`case` and `switch`)."""
    MAYBE = "maybe"
    """Depending on the values, even if no argument is null."""
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Function:
    """A function: its canonical name, its number of arguments and its type rules."""

    name: str
    minimum: int
    maximum: int | None
    types: TypeRule
    nulls: Nulls

    def call(self, arguments: Arguments, part: object) -> Call:
        """Type-check the arguments and build the call; `part` is the text that errors quote."""
        count = len(arguments)
        if count < self.minimum or (self.maximum is not None and count > self.maximum):
            raise _wrong_count(self.name, count, self.minimum, self.maximum, part)
        coerced, type_ = self.types(arguments, part)
        return Call(self.name, coerced, type_, self._nullable(coerced))

    def _nullable(self, arguments: Arguments) -> bool:
        match self.nulls:
            case Nulls.ANY:
                return any(argument.nullable for argument in arguments)
            case Nulls.ALL:
                return all(argument.nullable for argument in arguments)
            case Nulls.VALUES:
                first = 1 if self.name == "case" else 2
                return any(value.nullable for value in (*arguments[first::2], arguments[-1]))
            case Nulls.NEVER:
                return False
        return True


def _wrong_count(name: str, count: int, minimum: int, maximum: int | None, part: object) -> ExpressionError:
    if maximum is None:
        expected = f"at least {minimum}"
    else:
        expected = str(minimum) if minimum == maximum else f"{minimum} to {maximum}"
    noun = "argument" if expected.endswith("1") else "arguments"
    return ExpressionError("wrong_arguments", f"`{part}`: {name} takes {expected} {noun}, found {count}")


def _fixed(result: FieldType, *types: FieldType) -> TypeRule:
    """Accept arguments of the given types, with the last type repeated as needed."""

    def rule(arguments: Arguments, part: object) -> tuple[Arguments, FieldType]:
        wanted = (*types, *[types[-1]] * len(arguments))
        pairs = zip(arguments, wanted, strict=False)
        return tuple(coerce(argument, type_, part) for argument, type_ in pairs), result

    return rule


def _unified(result: FieldType | None = None) -> TypeRule:
    """Accept arguments of one common type, which is also the type of the result unless another is given."""

    def rule(arguments: Arguments, part: object) -> tuple[Arguments, FieldType]:
        coerced = unify(arguments, part)
        return coerced, result or coerced[0].type

    return rule


def _numbers(arguments: Arguments, part: object) -> tuple[Arguments, FieldType]:
    for argument in arguments:
        if argument.type not in _NUMERIC and not is_null(argument):
            raise mismatch(part, "int or float", str(argument.type), "use numbers, or CAST(... AS float)")
    coerced = unify(arguments, part)
    return coerced, coerced[0].type


def _whole_numbers(arguments: Arguments, part: object) -> tuple[Arguments, FieldType]:
    # DuckDB divides floats with `//` as with `/`, which is hardly ever intended; it is rejected here.
    for argument in arguments:
        if argument.type is not INT and not is_null(argument):
            raise mismatch(part, "int on both sides of //", str(argument.type), "write floor(a / b)")
    return tuple(cast(argument, INT) for argument in arguments), INT


def _round(arguments: Arguments, part: object) -> tuple[Arguments, FieldType]:
    (value,), type_ = _numbers(arguments[:1], part)
    if len(arguments) == 1:
        return (value,), type_
    digits = arguments[1]
    if not isinstance(digits, Literal) or not isinstance(digits.value, int) or digits.type is not INT:
        raise mismatch(part, "a whole number as digits", "an expression", "write a constant like round(x, 2)")
    return (value, digits), type_


def _texts(arguments: Arguments, part: object) -> tuple[Arguments, FieldType]:
    return tuple(cast(argument, STRING) for argument in arguments), STRING


def _nullif(arguments: Arguments, part: object) -> tuple[Arguments, FieldType]:
    # The first argument retains its type: int and float are compared without conversion.
    left, right = arguments
    target = common_type(arguments, part)
    if target is FLOAT:
        return (left, cast(right, FLOAT)), left.type
    return (coerce(left, target, part), coerce(right, target, part)), target


def _date_trunc(arguments: Arguments, part: object) -> tuple[Arguments, FieldType]:
    unit, time = arguments
    if not isinstance(unit, Literal) or str(unit.value).lower() not in TRUNCATED_TO:
        known = ", ".join(TRUNCATED_TO)
        raise mismatch(part, "a unit in quotes", "another value", f"write one of {known}")
    return (coerce(time, TIMESTAMP, part), Literal(str(unit.value).lower(), STRING)), TIMESTAMP


def _case(arguments: Arguments, part: object) -> tuple[Arguments, FieldType]:
    conditions = [coerce(condition, BOOL, part) for condition in arguments[:-1:2]]
    values = unify((*arguments[1::2], arguments[-1]), part)
    return _interleave(conditions, values), values[0].type


def _switch(arguments: Arguments, part: object) -> tuple[Arguments, FieldType]:
    operand, *choices = unify((arguments[0], *arguments[1:-1:2]), part)
    values = unify((*arguments[2::2], arguments[-1]), part)
    return (operand, *_interleave(choices, values)), values[0].type


def _interleave(choices: Sequence[Expression], values: Sequence[Expression]) -> Arguments:
    pairs = zip(choices, values, strict=False)
    return (*[item for pair in pairs for item in pair], values[-1])


def _table(functions: Iterable[Function]) -> dict[str, Function]:
    table: dict[str, Function] = {}
    for function in functions:
        if function.name in table:
            raise ValueError(f"function {function.name} is listed twice")
        table[function.name] = function
    return table


TRUNCATED_TO = (
    "microsecond",
    "millisecond",
    "second",
    "minute",
    "hour",
    "day",
    "week",
    "month",
    "quarter",
    "year",
)
"""The units of date_trunc."""

_ANY, _FAILS, _ALL, _NEVER, _MAYBE = Nulls.ANY, Nulls.FAILS, Nulls.ALL, Nulls.NEVER, Nulls.MAYBE

OPERATORS = _table(
    [
        *[Function(name, 2, None, _fixed(BOOL, BOOL), _ANY) for name in ("and", "or")],
        Function("not", 1, 1, _fixed(BOOL, BOOL), _ANY),
        *[Function(name, 2, 2, _unified(BOOL), _ANY) for name in ("=", "<>", "<", "<=", ">", ">=")],
        *[Function(name, 2, 2, _numbers, _FAILS) for name in ("+", "-", "*", "%")],
        Function("/", 2, 2, _fixed(FLOAT, FLOAT), _FAILS),
        Function("//", 2, 2, _whole_numbers, _FAILS),
        Function("negate", 1, 1, _numbers, _FAILS),
        Function("||", 2, 2, _texts, _ANY),
        Function("between", 3, 3, _unified(BOOL), _ANY),
        Function("in", 2, None, _unified(BOOL), _ANY),
        Function("like", 2, 3, _fixed(BOOL, STRING), _ANY),
        Function("shift", 2, 2, _fixed(TIMESTAMP, TIMESTAMP, INT), _FAILS),
        Function("is_null", 1, 1, lambda arguments, _: (arguments, BOOL), _NEVER),
        *[Function(name, 1, 1, _fixed(BOOL, BOOL), _NEVER) for name in ("is_true", "is_false")],
        Function("case", 3, None, _case, Nulls.VALUES),
        Function("switch", 4, None, _switch, Nulls.VALUES),
    ]
)
"""Operators, which have their own syntax; `shift` adds the microseconds of an INTERVAL to a timestamp.

CAST and TRY_CAST (`cast`, `try_cast`) are in `coercion`.
"""

FUNCTIONS = _table(
    [
        Function("coalesce", 1, None, _unified(), _ALL),
        Function("nullif", 2, 2, _nullif, _MAYBE),
        *[Function(name, 1, None, _unified(), _ALL) for name in ("least", "greatest")],
        Function("abs", 1, 1, _numbers, _FAILS),
        Function("round", 1, 2, _round, _FAILS),
        *[Function(name, 1, 1, _fixed(FLOAT, FLOAT), _ANY) for name in ("floor", "ceil")],
        *[Function(name, 1, 1, _fixed(FLOAT, FLOAT), _FAILS) for name in ("sqrt", "ln", "exp")],
        Function("power", 2, 2, _fixed(FLOAT, FLOAT), _FAILS),
        *[Function(name, 1, 1, _fixed(STRING, STRING), _ANY) for name in ("lower", "upper")],
        Function("length", 1, 1, _fixed(INT, STRING), _ANY),
        Function("concat", 1, None, _texts, _NEVER),
        Function("substr", 2, 3, _fixed(STRING, STRING, INT, INT), _FAILS),
        *[Function(name, 2, 2, _fixed(BOOL, STRING), _ANY) for name in ("contains", "starts_with")],
        *[
            Function(name, 1, 1, _fixed(INT, TIMESTAMP), _ANY)
            for name in ("year", "month", "day", "hour", "minute", "second", "dayofweek")
        ],
        Function("date_trunc", 2, 2, _date_trunc, _ANY),
        Function("epoch", 1, 1, _fixed(FLOAT, TIMESTAMP), _ANY),
    ]
)
"""Functions that are called by name."""

TIME_PARTS = {
    **{name: name for name in ("year", "month", "day", "hour", "minute", "second", "dayofweek", "epoch")},
    "dow": "dayofweek",
}
"""The function of each part that EXTRACT knows."""

ALIASES = {"substring": "substr", "pow": "power", "ceiling": "ceil", "ifnull": "coalesce", "len": "length"}


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate function: argument types (None: all) and result type (None: the argument's)."""

    name: str
    takes: frozenset[FieldType] | None
    gives: FieldType | None
    arguments: int = 1


AGGREGATES = {
    aggregate.name: aggregate
    for aggregate in (
        Aggregate("count", None, INT),
        Aggregate("sum", _NUMERIC, None),
        *[Aggregate(name, _NUMERIC, FLOAT) for name in ("avg", "stddev", "median")],
        Aggregate("quantile", _NUMERIC, FLOAT, arguments=2),
        *[Aggregate(name, None, None) for name in ("min", "max", "first", "last")],
    )
}

AGGREGATE_ALIASES = {"stddev_samp": "stddev", "mean": "avg", "quantile_cont": "quantile"}

WITHIN_GROUP = "percentile_cont"
"""SQL's other way to write `quantile`: `percentile_cont(0.95) WITHIN GROUP (ORDER BY x)`."""

CALLABLE = frozenset({*FUNCTIONS, *ALIASES, *AGGREGATES, *AGGREGATE_ALIASES, "if", WITHIN_GROUP})
"""Every name that may precede an opening parenthesis, in lower case."""


def unknown_function(name: str) -> ExpressionError:
    """Build the error for a name that is no function: close matches, else all there are."""
    close = closest(name.lower(), sorted(CALLABLE), 3)
    known = sorted({*FUNCTIONS, *AGGREGATES})
    advice = f"did you mean {' or '.join(close)}?" if close else f"known are {', '.join(known)}"
    return ExpressionError("unknown_function", f"there is no function `{name}`; {advice}")
