"""Aggregate functions in Spark SQL."""

from __future__ import annotations

from mavstream_protocol.expressions.typed import AggregateCall
from mavstream_protocol.schema import FieldType
from mavstream_spark.plans.windows import POSITION

_LARGEST = (1 << 63) - 1


def aggregated(call: AggregateCall, argument: str | None) -> str:
    """Return the SQL of an aggregate over a column (quoted; None for `count(*)`)."""
    if argument is None:
        return "count(1)"
    whole = call.argument is not None and call.argument.type is FieldType.INT
    match call.function:
        case "count":
            return f"count(DISTINCT {argument})" if call.distinct else f"count({argument})"
        case "sum" if whole:
            return _exact_sum(argument)
        case "avg" if whole:
            # In decimals, as sums of doubles lose the last digits of large integers.
            return f"CAST({_decimal_sum(argument)} AS DOUBLE) / count({argument})"
        case "stddev":
            return f"stddev_samp({argument})"
        case "quantile":
            return f"percentile({argument}, CAST({call.fraction} AS DOUBLE))"
        case "first":
            return f"min_by({argument}, `{POSITION}`)"
        case "last":
            return f"max_by({argument}, `{POSITION}`)"
        case name:
            return f"{name}({argument})"


def _decimal_sum(argument: str) -> str:
    return f"sum(CAST({argument} AS DECIMAL(19, 0)))"


def _exact_sum(argument: str) -> str:
    """A sum of integers is exact or fails the query; Spark's own would wrap around."""
    total = _decimal_sum(argument)
    problem = "raise_error('a sum of integers exceeds 64 bits, which fails the query')"
    fits = f"{total} BETWEEN {-_LARGEST - 1}BD AND {_LARGEST}BD OR {total} IS NULL"
    return f"CASE WHEN {fits} THEN CAST({total} AS BIGINT) ELSE CAST({problem} AS BIGINT) END"
