"""Translation of typed expressions to Spark SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mavstream_protocol.expressions.typed import ColumnRef, Expression, Literal
from mavstream_spark.plans.functions import RULES
from mavstream_spark.plans.pieces import Piece, Stages
from mavstream_spark.plans.sql import column, constant, converted, written
from mavstream_spark.plans.text_casts import register_text_casts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_columns(
    frame: DataFrame,
    computed: Mapping[str, Expression],
    kept: Sequence[str],
    names: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return a frame with the computed columns, then the kept ones.

    `names` maps columns of the expressions to columns of the frame where the two differ.
    """
    register_text_casts(frame.sparkSession)
    stages = Stages()
    columns = []
    for name, expression in computed.items():
        value = translated(expression, stages, names or {}).settled
        columns.append(f"{written(converted(value, expression.type))} AS `{name}`")
    for added in stages.selections():
        frame = frame.selectExpr("*", *added)
    return frame.selectExpr(*columns, *(f"`{name}`" for name in kept))


def translated(expression: Expression, stages: Stages, names: Mapping[str, str]) -> Piece:
    """Translate one expression; intermediate results are added to the stages."""
    if isinstance(expression, Literal):
        return Piece(constant(expression.value, expression.type))
    if isinstance(expression, ColumnRef):
        return Piece(column(names.get(expression.name, expression.name)))
    arguments = tuple(translated(argument, stages, names) for argument in expression.arguments)
    return RULES[expression.function](expression, arguments, stages)
