"""The expression compiler: turns typed expressions into functions over columns, called per batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Context

import numpy as np

from mavstream_protocol.expressions.typed import Call, ColumnRef, Expression, Literal
from mavstream_protocol.schema import FieldType
from mavstream_server.columns.column import Column, Ints
from mavstream_server.expressions import casts, choice, comparison, floats, integers, logic, times
from mavstream_server.expressions.errors import FloatFlags, RowErrors, without
from mavstream_server.expressions.operands import (
    Builder,
    Columns,
    Constant,
    Evaluator,
    Operand,
    Vector,
    evaluator,
    written_out,
)
from mavstream_server.expressions.text_functions import text_function

Predicate = Callable[[Columns, int, RowErrors], Ints]
"""Like an Evaluator, but returns the row numbers where the expression is true, in order."""


def _by_type(integer: Builder, other: Builder) -> Builder:
    """Choose a builder by the type of the result, which is that of the operands."""

    def build(call: Call, operands: Sequence[Operand], flags: FloatFlags) -> Operand:
        return (integer if call.type is FieldType.INT else other)(call, operands, flags)

    return build


def _extreme(call: Call, operands: Sequence[Operand], flags: FloatFlags) -> Operand:
    return (text_function if call.type is FieldType.STRING else choice.extreme)(call, operands, flags)


BUILDERS: dict[str, Builder] = {
    **dict.fromkeys(("and", "or"), logic.connector),
    "not": logic.negation,
    "is_null": logic.is_null,
    **dict.fromkeys(("is_true", "is_false"), logic.is_truth),
    **dict.fromkeys(comparison.UFUNCS, comparison.comparison),
    "between": comparison.between,
    "in": comparison.membership,
    **dict.fromkeys(("+", "-", "*", "%"), _by_type(integers.integer_arithmetic, floats.float_arithmetic)),
    "/": floats.float_arithmetic,
    "//": integers.integer_arithmetic,
    **dict.fromkeys(("negate", "abs"), _by_type(integers.integer_sign, floats.float_sign)),
    "round": _by_type(integers.integer_round, floats.float_round),
    **dict.fromkeys(("floor", "ceil"), floats.float_sign),
    **dict.fromkeys(("sqrt", "ln", "exp", "power"), floats.float_function),
    "case": choice.case,
    "switch": choice.switch,
    "coalesce": choice.coalesce,
    "nullif": choice.nullif,
    **dict.fromkeys(("least", "greatest"), _extreme),
    **dict.fromkeys(
        ("lower", "upper", "length", "substr", "contains", "starts_with", "like", "||", "concat"),
        text_function,
    ),
    **dict.fromkeys(
        ("year", "month", "day", "hour", "minute", "second", "dayofweek", "epoch"), times.time_part
    ),
    "date_trunc": times.truncation,
    "shift": times.shift,
    **dict.fromkeys(("cast", "try_cast"), casts.cast),
}
"""The builder of each canonical function."""


def compile_expression(expression: Expression) -> Evaluator:
    """Compile an expression; rows that fail are null in the result and reported.

    The evaluator has scratch state and must not be called by two threads at once.
    """
    flags = FloatFlags()
    guard = _guard(flags)
    operand = _compile(expression, flags, guard)
    if not isinstance(operand, Vector) or not operand.fallible:
        return evaluator(operand)
    inner, run = operand.evaluate, guard.run

    def evaluate(columns: Columns, size: int, errors: RowErrors) -> Column:
        own = RowErrors()
        column = run(inner, columns, size, own)
        if own.first is None:
            return column
        errors.add_from(own)
        return without(column, own.mask(size))

    return evaluate


def compile_predicate(expression: Expression) -> Predicate:
    """Compile a bool expression to the row numbers where it is true, not null and not failed."""
    inner = compile_expression(expression)

    def evaluate(columns: Columns, size: int, errors: RowErrors) -> Ints:
        column = inner(columns, size, errors)
        values = column.values if column.valid is None else column.values & column.valid
        rows: Ints = values.nonzero()[0]
        return rows

    return evaluate


def _guard(flags: FloatFlags) -> Context:
    """Return a context in which numpy reports to the flags instead of warning.

    numpy stores its error settings in a context variable; running in a prepared context takes a tenth of the
    time of `np.errstate` per batch.
    """
    context = Context()
    context.run(np.seterr, divide="call", over="call", invalid="call", under="ignore")
    context.run(np.seterrcall, flags)
    return context


def _compile(expression: Expression, flags: FloatFlags, guard: Context) -> Operand:
    if isinstance(expression, Literal):
        return Constant(expression.value, expression.type)
    if isinstance(expression, ColumnRef):
        name = expression.name
        return Vector(lambda columns, _size, _errors: columns[name], expression.type)
    operands = [_compile(argument, flags, guard) for argument in expression.arguments]
    build = BUILDERS[expression.function]
    if any(isinstance(operand, Vector) for operand in operands):
        return build(expression, operands, flags)
    return _folded(expression, build, operands, flags, guard)


def _folded(
    call: Call, build: Builder, constants: list[Operand], flags: FloatFlags, guard: Context
) -> Operand:
    """Evaluate a call of constants once; if that fails, return an operand that fails in every row."""
    first, *rest = constants
    operand = build(call, [written_out(first), *rest], flags)
    if isinstance(operand, Constant):
        return operand
    errors = RowErrors()
    column = guard.run(operand.evaluate, {}, 1, errors)
    if errors.first is not None:
        return operand
    return Constant(column.to_list(call.type)[0], call.type)
