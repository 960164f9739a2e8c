"""Random typed expressions over random rows with nulls give the results of DuckDB."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from sqlglot import exp, parse_one
from tests.support.oracle.duckdb_sql import connect, to_duckdb
from tests.support.oracle.random_expressions import COLUMNS, FIELDS, random_expression, random_rows

from mavstream_protocol.expressions.parser import parse_scalar
from mavstream_protocol.schema import Field, FieldType
from mavstream_server.columns.column import Column
from mavstream_server.expressions import RowErrors, compile_expression

TABLES = 400 if os.environ.get("MAVSTREAM_TEST_SCALE") == "full" else 16
EXPRESSIONS_PER_TABLE = 10
SQL_TYPES = {
    FieldType.INT: "BIGINT",
    FieldType.FLOAT: "DOUBLE",
    FieldType.BOOL: "BOOLEAN",
    FieldType.STRING: "VARCHAR",
    FieldType.TIMESTAMP: "TIMESTAMP",
}
# Where DuckDB continues with infinity and NaN, our row fails, or a TRY_CAST is null.
MACROS = """
    CREATE MACRO finite(v) AS
        CASE WHEN isfinite(CAST(v AS DOUBLE)) IS NOT FALSE THEN v ELSE CAST('not finite' AS BIGINT) END;
    CREATE MACRO finite_or_null(v) AS CASE WHEN isfinite(CAST(v AS DOUBLE)) THEN v END
"""
CAN_OVERFLOW = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Exp, exp.Pow, exp.Round)


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = connect()
    connection.execute("PRAGMA disable_optimizer")
    connection.execute(MACROS)
    yield connection
    connection.close()


def fill(database: duckdb.DuckDBPyConnection, rows: list[tuple[Any, ...]]) -> None:
    listed = ", ".join(f"{name} {SQL_TYPES[field.type]}" for name, field in FIELDS.items())
    database.execute(f"CREATE OR REPLACE TABLE rows (n BIGINT, {listed})")
    marks = ", ".join("make_timestamp(?)" if f.type is FieldType.TIMESTAMP else "?" for f in FIELDS.values())
    database.executemany(
        f"INSERT INTO rows VALUES (?, {marks})", [(number, *row) for number, row in enumerate(rows)]
    )


def oracle_sql(text: str, *, forgiving: bool = True) -> str:
    """Our text for DuckDB, failing where ours fails and, if asked, forgiving where AND and OR do."""

    def changed(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.TryCast) and node.to.this is exp.DType.DOUBLE:
            return exp.Anonymous(this="finite_or_null", expressions=[node])
        shifts = any(isinstance(node.args.get(key), exp.Interval) for key in ("this", "expression"))
        if (isinstance(node, CAN_OVERFLOW) and not shifts) or (
            type(node) is exp.Cast and node.to.this is exp.DType.DOUBLE and not node.this.is_string
        ):
            return exp.Anonymous(this="finite", expressions=[node])
        if forgiving and isinstance(node, (exp.And, exp.Or)):
            left, right = exp.paren(node.this), exp.paren(node.expression)
            return type(node)(
                this=exp.Anonymous(this="TRY", expressions=[left]),
                expression=exp.Anonymous(this="TRY", expressions=[right]),
            )
        return node

    tree = parse_one(to_duckdb(text), read="duckdb", into=exp.Condition)
    for node in reversed(list(tree.walk())):
        replaced = changed(node.copy())
        if node is tree:
            tree = replaced
        else:
            node.replace(replaced)
    return tree.sql(dialect="duckdb")


def refused(database: duckdb.DuckDBPyConnection, text: str) -> bool:
    """Whether DuckDB refuses the rows when nothing is forgiven.

    Where all rows of a vector are null it leaves out what would fail next to them: whether a row fails
    depends on its neighbours, so all are asked for together.
    """
    sql = oracle_sql(text, forgiving=False)
    try:
        database.execute(f"SELECT {sql} FROM rows").fetchall()
    except duckdb.Error:
        return True
    return False


def folded(database: duckdb.DuckDBPyConnection, text: str) -> bool:
    """Whether DuckDB leaves out an operand that would fail because the other one is a constant null."""
    tree = parse_one(to_duckdb(text), read="duckdb", into=exp.Condition)
    sides = (side for node in tree.find_all(exp.Binary) for side in (node.left, node.right))
    constants = [side.sql(dialect="duckdb") for side in sides if side.find(exp.Column) is None]
    return any(database.execute(f"SELECT TRY({sql}) IS NULL").fetchall() == [(True,)] for sql in constants)


def expected(
    database: duckdb.DuckDBPyConnection, text: str, type_: FieldType
) -> tuple[list[Any], list[bool]]:
    """Each row's value, None where null or failed, and which rows failed."""
    sql = oracle_sql(text)
    value = f"epoch_us(TRY({sql}))" if type_ is FieldType.TIMESTAMP else f"TRY({sql})"
    query = f"SELECT {value}, TRY(({sql}) IS NULL) IS NULL FROM rows ORDER BY n"
    found = database.execute(query).fetchall()
    return [row[0] for row in found], [row[1] for row in found]


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-300)
    return type(ours) is type(theirs) and bool(ours == theirs)


def reproduction(text: str, row: tuple[Any, ...], ours: Any, theirs: Any) -> str:
    used = {name: value for name, value in zip(FIELDS, row, strict=True) if name in text}
    return f"{text}\n  row {used}\n  ours {ours!r}\n  DuckDB {theirs!r}\n  asked {oracle_sql(text)}"


@pytest.mark.parametrize("seed", range(TABLES))
def test_random_expressions_agree(database: duckdb.DuckDBPyConnection, seed: int) -> None:
    generator = random.Random(seed)
    rows = random_rows(generator, 40)
    fill(database, rows)
    columns = {
        name: Column.from_list(field.type, [row[index] for row in rows])
        for index, (name, field) in enumerate(FIELDS.items())
    }
    for _ in range(EXPRESSIONS_PER_TABLE):
        depth = generator.randint(1, 4)
        text = random_expression(generator, depth)
        expression = parse_scalar(text, FIELDS)
        errors = RowErrors()
        column = compile_expression(expression)(columns, len(rows), errors)
        assert len(column) == len(rows)
        ours = column.to_list(expression.type)
        try:
            theirs, failed = expected(database, text, expression.type)
        except (duckdb.ConversionException, duckdb.OutOfRangeException):
            continue  # a constant that always fails: DuckDB reports it before it reads a row
        marked = errors.mask(len(rows)).tolist()
        for number, (row, mine, other) in enumerate(zip(rows, ours, theirs, strict=True)):
            agreed = same(mine, other) or (
                marked[number] and (refused(database, text) or folded(database, text))
            )
            assert agreed, reproduction(text, row, mine, other)
        # Which rows fail is compared for single calls; in deeper ones a null may hide it from DuckDB.
        if depth == 1:
            for row, mine, other in zip(rows, marked, failed, strict=True):
                assert mine == other, reproduction(text, row, f"failed: {mine}", f"failed: {other}")


def test_columns_cover_all_types() -> None:
    assert {field.type for field in COLUMNS} == set(FieldType)
    assert all(isinstance(field, Field) for field in COLUMNS)
