"""Rules for functions of strings, and for casts."""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from mavstream_protocol.expressions.typed import Call, Literal
from mavstream_protocol.schema import FieldType
from mavstream_spark.errors import UnsupportedPlan
from mavstream_spark.plans.numbers import failing, integer_of_float
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
    present,
)
from mavstream_spark.plans.text_casts import READERS, WRITERS

# Spark requires an escape character; this one does not occur in texts, so nothing is escaped.
_NO_ESCAPE = "\x01"
_FARTHEST = 1 << 32
_INT32 = (1 << 31) - 1


def _plain(name: str) -> Callable[[Call, tuple[Piece, ...], Stages], Piece]:
    def rule(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
        value = call(name, *(argument.value for argument in arguments))
        return Piece(converted(value, typed.type), failures(*arguments), highest(arguments))

    return rule


def _letters(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    """Translate lower and upper, letter by letter: the number of letters never changes."""
    (text,) = (stages.atom(argument) for argument in arguments)
    name = typed.function
    letter = exp.column("c")
    changed = call(name, letter)
    one = binary(exp.EQ, call("char_length", changed), exp.Literal.number(1))
    if name == "lower":
        each = choice([(one, changed)], call("left", changed, exp.Literal.number(1)))
    else:
        sharp = binary(exp.EQ, letter, exp.Literal.string("ß"))
        each = choice([(sharp, exp.Literal.string("ẞ")), (one, changed)], letter)
    mapped = call(
        "transform",
        call("split", text.value, exp.Literal.string("")),
        exp.Lambda(this=each, expressions=[exp.to_identifier("c")]),
    )
    plain = binary(exp.EQ, call("octet_length", text.value), call("char_length", text.value))
    value = choice([(plain, call(name, text.value))], call("array_join", mapped, exp.Literal.string("")))
    return Piece(value, text.fails, text.level)


def _joined(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    """Translate `||`, which is null if a side is, and concat, which skips nulls."""
    values = [argument.value for argument in arguments]
    if typed.function == "concat":
        values = [call("coalesce", value, exp.Literal.string("")) for value in values]
    return Piece(call("concat", *values), failures(*arguments), highest(arguments))


def _substr(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    """Translate substr: starts count from 1, negative ones from the end; a negative length goes back."""
    pieces = tuple(stages.atom(argument) for argument in arguments)
    text, start = pieces[0].value, pieces[1].value
    zero = integer(0)
    begin = choice(
        [
            (binary(exp.GT, start, zero), binary(exp.Sub, start, integer(1))),
            (binary(exp.LT, start, zero), binary(exp.Add, call("char_length", text), start)),
        ],
        integer(-1),
    )
    # A null start would take the last branch.
    begin = choice([(present(start), begin)], NULL)
    first = stages.named(begin, highest(pieces))
    far = [_beyond(start)]
    if len(pieces) == 2:
        value = call("substring", text, _start(call("greatest", first.value, zero)))
        # greatest and least skip nulls.
        return _cut(choice([(present(first.value), value)], NULL), (*pieces, first), far)
    length = pieces[2].value
    last = stages.named(binary(exp.Add, first.value, length), first.level)
    low = call("greatest", call("least", first.value, last.value), zero)
    high = call("greatest", call("greatest", first.value, last.value), zero)
    far.append(_beyond(length))
    value = call("substring", text, _start(low), _small(binary(exp.Sub, high, low)))
    value = choice([(present(first.value, last.value), value)], NULL)
    return _cut(value, (*pieces, last), far)


def _cut(value: Tree, pieces: tuple[Piece, ...], far: list[Tree]) -> Piece:
    condition = all_of((any_of(far), present(*(piece.value for piece in pieces[:-1]))))
    assert condition is not None
    return failing(value, pieces, condition)


def _beyond(offset: Tree) -> Tree:
    found = any_of((binary(exp.LT, offset, integer(-_FARTHEST)), binary(exp.GTE, offset, integer(_FARTHEST))))
    assert found is not None
    return found


def _start(offset: Tree) -> Tree:
    return _small(binary(exp.Add, offset, integer(1)))


def _small(value: Tree) -> Tree:
    """Return an argument of Spark's substring, which is INT; no text is longer."""
    least = call("least", value, integer(_INT32))
    return exp.Cast(this=least, to=exp.DataType.build("INT", dialect="spark"))


def _like(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    text, pattern = arguments[:2]
    escape = typed.arguments[2] if len(typed.arguments) > 2 else None
    constant = typed.arguments[1]
    if isinstance(constant, Literal):
        if constant.value is None:
            return Piece(NULL, text.fails, text.level)
        sign = escape.value if isinstance(escape, Literal) else None
        regex = _regex(str(constant.value), None if sign is None else str(sign))
        if regex is None:
            return failing(FALSE, (text,), present(text.value))
        return Piece(call("rlike", text.value, exp.Literal.string(regex)), text.fails, text.level)
    if escape is not None:
        raise UnsupportedPlan(
            "LIKE with ESCAPE needs a constant pattern on Spark: write the pattern as a literal"
        )
    like = exp.Like(this=text.value.copy(), expression=pattern.value.copy())
    value = exp.Paren(this=exp.Escape(this=like, expression=exp.Literal.string(_NO_ESCAPE)))
    return Piece(value, failures(text, pattern), highest((text, pattern)))


def _regex(pattern: str, escape: str | None) -> str | None:
    """Return a pattern as a Java regular expression; None if it ends with the escape character."""
    parts = [r"(?s)\A"]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            literal = next(characters, None)
            if literal is None:
                return None
            parts.append(_exactly(literal))
        else:
            parts.append({"%": ".*", "_": "."}.get(character) or _exactly(character))
    return "".join([*parts, r"\z"])


def _exactly(character: str) -> str:
    return character if re.fullmatch(r"\w", character) else rf"\x{{{ord(character):x}}}"


def _cast(typed: Call, arguments: tuple[Piece, ...], stages: Stages) -> Piece:
    source, target = typed.arguments[0].type, typed.type
    operand = stages.atom(arguments[0])
    failsafe = typed.function == "try_cast"
    if source is target:
        return operand
    if source is FieldType.STRING:
        return _read(operand, target, stages, failsafe=failsafe)
    if target is FieldType.STRING and source in WRITERS:
        return Piece(call(WRITERS[source], operand.value), operand.fails, operand.level)
    if target is FieldType.BOOL:
        different = binary(exp.NEQ, operand.value, converted(integer(0), source))
        return Piece(different, operand.fails, operand.level)
    if source is FieldType.FLOAT and target is FieldType.INT:
        return integer_of_float(operand, stages, failsafe=failsafe)
    return Piece(converted(operand.value, target), operand.fails, operand.level)


def _read(operand: Piece, target: FieldType, stages: Stages, *, failsafe: bool) -> Piece:
    found = stages.named(call(READERS[target], operand.value), operand.level)
    value = found.value
    if target is FieldType.TIMESTAMP:
        value = call("timestamp_micros", value)
    elif target is FieldType.BOOL:
        value = choice([(is_null(value), NULL), (binary(exp.EQ, value, integer(0)), FALSE)], TRUE)
    if failsafe:
        return Piece(value, operand.fails, found.level)
    failed = all_of((is_null(found.value), present(operand.value)))
    assert failed is not None
    return failing(value, (operand, found), failed)


RULES = {
    **dict.fromkeys(("lower", "upper"), _letters),
    **dict.fromkeys(("||", "concat"), _joined),
    "length": _plain("char_length"),
    "contains": _plain("contains"),
    "starts_with": _plain("startswith"),
    "substr": _substr,
    "like": _like,
    **dict.fromkeys(("cast", "try_cast"), _cast),
}
