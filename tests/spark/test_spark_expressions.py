"""Expressions on Spark give the values, nulls and failures that the engine gives."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.support.oracle.random_expressions import FIELDS, random_expression, random_rows
from tests.support.scale import scaled

from mavstream_protocol.expressions.parser import parse_scalar
from mavstream_protocol.expressions.typed import Expression
from mavstream_protocol.schema import FieldType
from mavstream_server.columns.column import Column
from mavstream_server.expressions import RowErrors, compile_expression
from mavstream_spark.plans.expressions import with_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ("tests.support.spark.fixtures",)
pytestmark = pytest.mark.xdist_group("spark")

EXPRESSIONS = scaled(50, 400)
ARROW_TYPES = {
    FieldType.INT: pa.int64(),
    FieldType.FLOAT: pa.float64(),
    FieldType.BOOL: pa.bool_(),
    FieldType.STRING: pa.string(),
    FieldType.TIMESTAMP: pa.timestamp("us", "UTC"),
}
Rows = list[tuple[Any, ...]]


def by_engine(expression: Expression, rows: Rows) -> list[Any]:
    columns = {
        name: Column.from_list(field.type, [row[index] for row in rows])
        for index, (name, field) in enumerate(FIELDS.items())
    }
    return compile_expression(expression)(columns, len(rows), RowErrors()).to_list(expression.type)


def by_spark(spark: SparkSession, expressions: dict[str, Expression], rows: Rows) -> dict[str, list[Any]]:
    arrays = {
        name: pa.array([row[index] for row in rows], ARROW_TYPES[field.type])
        for index, (name, field) in enumerate(FIELDS.items())
    }
    table = pa.table({"row": pa.array(range(len(rows)), pa.int64()), **arrays})
    frame = with_columns(spark.createDataFrame(table), expressions, ["row"])
    found = frame.orderBy("row").toArrow()
    return {name: _values(found.column(name)) for name in expressions}


def _values(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64())
    return column.to_pylist()


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-300)
    return type(ours) is type(theirs) and bool(ours == theirs)


def test_random_expressions_agree_with_the_engine(spark: SparkSession) -> None:
    generator = random.Random(6)
    rows = random_rows(generator, 40)
    texts = [random_expression(generator, generator.randint(1, 3)) for _ in range(EXPRESSIONS)]
    expressions = {f"e{number}": parse_scalar(text, FIELDS) for number, text in enumerate(texts)}
    found = by_spark(spark, expressions, rows)
    for text, (name, expression) in zip(texts, expressions.items(), strict=True):
        expected = by_engine(expression, rows)
        for row, ours, theirs in zip(rows, expected, found[name], strict=True):
            used = {key: value for key, value in zip(FIELDS, row, strict=True) if key in text}
            assert same(ours, theirs), f"{text}\n  row {used}\n  engine {ours!r}\n  Spark {theirs!r}"
