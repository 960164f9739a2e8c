"""Answers of DuckDB to random SQL over tables that hold the streams."""

from __future__ import annotations

import duckdb
import pyarrow as pa
from sqlglot import parse_one
from tests.support.differential.oracle import SQL_TYPES
from tests.support.differential.scripts import Row
from tests.support.differential.window_sql import FLOOR_DIVISION
from tests.support.oracle.duckdb_sql import connect, rewritten
from tests.support.sql.random_sql import INSTANT, SqlCase

from mavstream_protocol.schema import FieldType, Schema


class Tables:
    """A database in which each case has its own tables."""

    def __init__(self) -> None:
        self._database = connect()
        self._database.execute(FLOOR_DIVISION)
        self._database.execute(INSTANT)

    def answer(self, case: SqlCase, schema: Schema) -> list[Row]:
        """Return the rows of a query, with times in us."""
        for script in case.scripts:
            listed = ", ".join(f"{field.name} {SQL_TYPES[field.type]}" for field in script.fields)
            self._database.execute(f"CREATE OR REPLACE TABLE {script.name} ({listed})")
            if script.rows:
                arrays = [pa.array(values) for values in zip(*script.rows, strict=True)]
                self._database.register("given", pa.table(arrays, names=[f.name for f in script.fields]))
                cells = ", ".join(
                    f"make_timestamp({f.name})" if f.type is FieldType.TIMESTAMP else f.name
                    for f in script.fields
                )
                self._database.execute(f"INSERT INTO {script.name} SELECT {cells} FROM given")
                self._database.unregister("given")
        sql = parse_one(case.sql.theirs, read="duckdb").transform(rewritten).sql(dialect="duckdb")
        columns = ", ".join(
            f'epoch_us("{f.name}")' if f.type is FieldType.TIMESTAMP else f'"{f.name}"::{SQL_TYPES[f.type]}'
            for f in schema
        )
        return self._database.execute(f"SELECT {columns} FROM ({sql})").fetchall()


Unanswerable = (duckdb.OutOfRangeException, duckdb.ConversionException)
"""What DuckDB raises where a sum overflows."""
