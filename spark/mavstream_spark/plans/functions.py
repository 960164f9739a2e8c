"""Rules that translate each function of our expressions to Spark SQL.

A rule gets the typed call and its translated arguments. Spark must run with `spark.sql.ansi.enabled=false`:
then nothing throws, and the rule decides where a row fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from sqlglot import exp

from mavstream_protocol.expressions.typed import Call
from mavstream_protocol.schema import FieldType
from mavstream_spark.plans import numbers, texts
from mavstream_spark.plans.pieces import Piece, Stages, failures, highest
from mavstream_spark.plans.sql import (
    FALSE,
    NULL,
    TRUE,
    Tree,
    all_of,
    any_of,
    binary,
    call,
    choice,
    converted,
    integer,
    is_null,
    negated,
    surely,
)

Rule = Callable[[Call, tuple[Piece, ...], Stages], Piece]

_COMPARISONS: Mapping[str, type[exp.Binary]] = MappingProxyType(
    {"=": exp.EQ, "<>": exp.NEQ, "<": exp.LT, "<=": exp.LTE, ">": exp.GT, ">=": exp.GTE}
)
_MICROSECONDS = 1_000_000


def _comparison(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    left, right = arguments
    return _strict(binary(_COMPARISONS[typed.function], left.value, right.value), arguments)


def _strict(value: Tree, arguments: tuple[Piece, ...]) -> Piece:
    """Return the piece of a function that only fails where an argument does."""
    return Piece(value, failures(*arguments), highest(arguments))


def _connector(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    return _connected(typed.function, arguments, stages)


def _connected(name: str, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    """Translate AND and OR: a failure counts only in rows that the other sides do not decide."""
    joined = all_of if name == "and" else any_of
    value = joined(argument.settled for argument in arguments)
    assert value is not None
    failed = failures(*arguments)
    if failed is None:
        return Piece(value, None, highest(arguments))
    whole = stages.named(value, highest(arguments))
    return Piece(whole.value, binary(exp.And, is_null(whole.value), failed), whole.level)


def _negation(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    return _strict(negated(arguments[0].value), arguments)


def _null_test(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    return _strict(is_null(arguments[0].value), arguments)


def _truth_test(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    value = arguments[0].value
    return _strict(surely(value if typed.function == "is_true" else negated(value)), arguments)


def _between(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    value, low, high = stages.atom(arguments[0]), *arguments[1:]
    above = _strict(binary(exp.GTE, value.value, low.value), (Piece(value.value, None, value.level), low))
    below = _strict(binary(exp.LTE, value.value, high.value), (Piece(value.value, None, value.level), high))
    return _around(value, _connected("and", (above, below), stages))


def _membership(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    value = stages.atom(arguments[0])
    bare = Piece(value.value, None, value.level)
    equal = tuple(_strict(binary(exp.EQ, value.value, each.value), (bare, each)) for each in arguments[1:])
    return _around(value, _connected("or", equal, stages))


def _around(operand: Piece, body: Piece) -> Piece:
    """Return a body whose operand is always computed, so that its failures always count."""
    return Piece(body.value, failures(operand, body), max(operand.level, body.level))


def _case(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    return _chosen(arguments[:-1:2], (*arguments[1::2], arguments[-1]))


def _switch(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    operand = stages.atom(arguments[0])
    bare = Piece(operand.value, None, operand.level)
    conditions = tuple(
        _strict(binary(exp.EQ, operand.value, choice_.value), (bare, choice_))
        for choice_ in arguments[1:-1:2]
    )
    return _around(operand, _chosen(conditions, (*arguments[2::2], arguments[-1])))


def _chosen(conditions: tuple[Piece, ...], values: tuple[Piece, ...]) -> Piece:
    """Translate CASE: failures count in the conditions that are reached and in the chosen value."""
    pairs = list(zip(conditions, values, strict=False))
    value = choice([(condition.value, each.value) for condition, each in pairs], values[-1].value)
    level = highest((*conditions, *values))
    if failures(*conditions, *values) is None:
        return Piece(value, None, level)
    branches: list[tuple[Tree, Tree]] = []
    for condition, each in pairs:
        if condition.fails is not None:
            branches.append((condition.fails, TRUE))
        branches.append((condition.value, each.fails or FALSE))
    return Piece(value, choice(branches, values[-1].fails or FALSE), level)


def _coalesce(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    pieces = tuple(stages.atom(argument) for argument in arguments)
    failed = pieces[-1].fails
    for piece in reversed(pieces[:-1]):
        behind = None if failed is None else binary(exp.And, is_null(piece.value), failed)
        failed = any_of((piece.fails, behind))
    return Piece(call("coalesce", *(piece.value for piece in pieces)), failed, highest(pieces))


def _nullif(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    left, right = stages.atom(arguments[0]), arguments[1]
    compared = left.value
    if typed.arguments[0].type is not typed.arguments[1].type:
        compared = converted(compared, typed.arguments[1].type)
    same = surely(binary(exp.EQ, compared, right.value))
    return _strict(choice([(same, NULL)], left.value), (left, right))


def _extreme(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    if len(arguments) == 1:
        return arguments[0]
    return _strict(call(typed.function, *(argument.value for argument in arguments)), arguments)


def _time_part(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    part = call(typed.function, arguments[0].value)
    if typed.function == "dayofweek":
        part = binary(exp.Sub, part, exp.Literal.number(1))  # ours starts at 0
    return _strict(converted(part, FieldType.INT), arguments)


def _epoch(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    micros = converted(call("unix_micros", arguments[0].value), FieldType.FLOAT)
    return _strict(binary(exp.Div, micros, converted(integer(_MICROSECONDS), FieldType.FLOAT)), arguments)


def _date_trunc(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    return _strict(call("date_trunc", arguments[1].value, arguments[0].value), arguments)


def _shift(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    """Translate an interval by the rule of integer sums, which knows where 64 bits do not suffice."""
    time, distance = arguments
    micros = Piece(call("unix_micros", time.value), time.fails, time.level)
    total = numbers.RULES["+"](replace(typed, function="+", type=FieldType.INT), (micros, distance), stages)
    return Piece(call("timestamp_micros", total.value), total.fails, total.level)


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **dict.fromkeys(_COMPARISONS, _comparison),
        **dict.fromkeys(("and", "or"), _connector),
        "not": _negation,
        "is_null": _null_test,
        **dict.fromkeys(("is_true", "is_false"), _truth_test),
        "between": _between,
        "in": _membership,
        "case": _case,
        "switch": _switch,
        "coalesce": _coalesce,
        "nullif": _nullif,
        **dict.fromkeys(("least", "greatest"), _extreme),
        **dict.fromkeys(("year", "month", "day", "hour", "minute", "second", "dayofweek"), _time_part),
        "date_trunc": _date_trunc,
        "shift": _shift,
        "epoch": _epoch,
        **numbers.RULES,
        **texts.RULES,
    }
)
"""The rule of each canonical function of the protocol."""
