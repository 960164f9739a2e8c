"""Rules for arithmetic: overflow, domain errors and results that are not finite fail in their row."""

from __future__ import annotations

from sqlglot import exp

from mavstream_protocol.expressions.conversions import INT_MIN
from mavstream_protocol.expressions.typed import Call, Literal
from mavstream_protocol.schema import FieldType
from mavstream_spark.plans.pieces import Piece, Stages, failures, highest
from mavstream_spark.plans.sql import (
    NULL,
    Tree,
    all_of,
    any_of,
    binary,
    call,
    choice,
    constant,
    converted,
    integer,
    is_null,
    negated,
    present,
    surely,
)

_LARGEST = 1.7976931348623157e308
_INTEGERS = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}
_FLOATS: dict[str, type[exp.Binary]] = {"+": exp.Add, "-": exp.Sub, "*": exp.Mul, "/": exp.Div, "%": exp.Mod}


def _number(value: float) -> Tree:
    return constant(value, FieldType.FLOAT)


def failing(value: Tree, arguments: tuple[Piece, ...], failed: Tree) -> Piece:
    """Return a value that fails where `failed` is true, and where an argument does."""
    failed = surely(failed)
    return Piece(choice([(failed, NULL)], value), any_of((failures(*arguments), failed)), highest(arguments))


def _finite(value: Tree, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    """Return a float that fails where it is not finite; to Spark, NaN is larger than every number."""
    found = stages.named(value, highest(arguments))
    within = binary(exp.LTE, call("abs", found.value), _number(_LARGEST))
    return failing(found.value, (*arguments, found), negated(within))


def _arithmetic(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    left, right = (stages.atom(argument) for argument in arguments)
    if typed.type is FieldType.INT:
        return _integers(typed.function, left, right, stages)
    kind = _FLOATS[typed.function]
    divisor = right.value
    if kind in (exp.Div, exp.Mod):
        divisor = choice([(binary(exp.EQ, divisor, _number(0.0)), NULL)], divisor)
    return _finite(binary(kind, left.value, divisor), (left, right), stages)


def _integers(name: str, left: Piece, right: Piece, stages: Stages) -> Piece:
    both = (left, right)
    if name in _INTEGERS:
        found = stages.named(call(_INTEGERS[name], left.value, right.value), highest(both))
        failed = all_of((is_null(found.value), present(left.value, right.value)))
        assert failed is not None
        return failing(found.value, (*both, found), failed)
    # The only quotient that overflows; the remainder fails as well, as in DuckDB.
    failed = binary(
        exp.And,
        binary(exp.EQ, left.value, integer(INT_MIN)),
        binary(exp.EQ, right.value, integer(-1)),
    )
    divisor = choice([(binary(exp.EQ, right.value, integer(0)), NULL)], right.value)
    return failing(binary(exp.IntDiv if name == "//" else exp.Mod, left.value, divisor), both, failed)


def _sign(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    (operand,) = (stages.atom(argument) for argument in arguments)
    value = call("negative" if typed.function == "negate" else "abs", operand.value)
    if typed.type is FieldType.FLOAT:
        return Piece(value, operand.fails, operand.level)
    return failing(value, (operand,), binary(exp.EQ, operand.value, integer(INT_MIN)))


def _whole(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    """Translate floor and ceil; Spark's own return BIGINT, which overflows for large floats."""
    (operand,) = (stages.atom(argument) for argument in arguments)
    near = stages.named(call("rint", operand.value), operand.level)
    if typed.function == "floor":
        beyond, step = binary(exp.GT, near.value, operand.value), -1.0
    else:
        beyond, step = binary(exp.LT, near.value, operand.value), 1.0
    moved = binary(exp.Add, near.value, _number(step))
    return Piece(choice([(beyond, moved)], near.value), operand.fails, near.level)


def _half_away(value: Tree, level: int, stages: Stages) -> Piece:
    """Round to whole numbers, halves away from zero; exact, unlike adding 0.5."""
    given = stages.named(value, level)
    size = stages.named(call("abs", given.value), given.level)
    near = stages.named(call("rint", size.value), size.level)
    # rint rounds halves to even: a half that it rounded down is short by one.
    short = binary(exp.EQ, binary(exp.Sub, size.value, near.value), _number(0.5))
    up = choice([(short, binary(exp.Add, near.value, _number(1.0)))], near.value)
    down = binary(exp.LT, given.value, _number(0.0))
    return Piece(choice([(down, call("negative", up))], up), None, near.level)


def _round(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    operand = stages.atom(arguments[0])
    given = typed.arguments[1] if len(typed.arguments) > 1 else None
    digits = given.value if isinstance(given, Literal) and isinstance(given.value, int) else 0
    if typed.type is FieldType.INT:
        return operand if digits >= 0 else _round_integer(operand, min(-digits, 20), stages)
    if digits > 308:
        return operand
    if digits < -308:
        return Piece(choice([(is_null(operand.value), NULL)], _number(0.0)), operand.fails, operand.level)
    if digits == 0:
        found = _half_away(operand.value, operand.level, stages)
        return Piece(found.value, operand.fails, found.level)
    power = _number(10.0 ** abs(digits))
    scaled = binary(exp.Mul if digits > 0 else exp.Div, operand.value, power)
    near = _half_away(scaled, operand.level, stages)
    back = stages.named(binary(exp.Div if digits > 0 else exp.Mul, near.value, power), near.level)
    if digits < 0:
        return _finite(back.value, (operand, back), stages)
    finite = surely(binary(exp.LTE, call("abs", back.value), _number(_LARGEST)))
    return Piece(choice([(finite, back.value)], operand.value), operand.fails, back.level)


def _round_integer(operand: Piece, zeros: int, stages: Stages) -> Piece:
    value = operand.value
    if zeros > 18:
        none = choice([(is_null(value), NULL)], integer(0))
        if zeros > 19:
            return Piece(none, operand.fails, operand.level)
        half = integer(5 * 10**18)
        far = any_of((binary(exp.GTE, value, half), binary(exp.LTE, value, integer(-5 * 10**18))))
        assert far is not None
        return failing(none, (operand,), far)
    rest = stages.named(binary(exp.Mod, value, integer(10**zeros)), operand.level)
    half = integer(10**zeros // 2)
    up, down = binary(exp.GTE, rest.value, half), binary(exp.LTE, rest.value, call("negative", half))
    step = choice([(up, integer(10**zeros)), (down, integer(-(10**zeros)))], integer(0))
    moved = call("try_add", binary(exp.Sub, value, rest.value), step)
    found = stages.named(moved, rest.level)
    failed = all_of((is_null(found.value), present(value)))
    assert failed is not None
    return failing(found.value, (operand, found), failed)


def _function(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    """Translate sqrt, ln, exp and power; Spark's ln is null where undefined, so its domain is checked."""
    pieces = tuple(stages.atom(argument) for argument in arguments)
    found = _finite(call(typed.function, *(piece.value for piece in pieces)), pieces, stages)
    if typed.function != "ln":
        return found
    return failing(found.value, (found,), binary(exp.LTE, pieces[0].value, _number(0.0)))


def integer_of_float(operand: Piece, stages: Stages, *, failsafe: bool) -> Piece:
    """Return the nearest integer, halves to even."""
    near = stages.named(call("rint", operand.value), operand.level)
    limit = _number(2.0**63)
    beyond = any_of((binary(exp.LT, near.value, call("negative", limit)), binary(exp.GTE, near.value, limit)))
    assert beyond is not None
    value = converted(near.value, FieldType.INT)
    if failsafe:
        return Piece(choice([(beyond, NULL)], value), operand.fails, near.level)
    return failing(value, (operand, near), beyond)


RULES = {
    **dict.fromkeys(("+", "-", "*", "/", "//", "%"), _arithmetic),
    **dict.fromkeys(("negate", "abs"), _sign),
    **dict.fromkeys(("floor", "ceil"), _whole),
    "round": _round,
    **dict.fromkeys(("sqrt", "ln", "exp", "power"), _function),
}
