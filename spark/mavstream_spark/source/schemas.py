"""Schemas of rows as Arrow and as Spark: event time is `timestamp`, never `timestamp_ntz`."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from mavstream_spark.errors import InvalidJob

_TYPES: tuple[tuple[pa.DataType, DataType], ...] = (
    (pa.int64(), LongType()),
    (pa.float64(), DoubleType()),
    (pa.bool_(), BooleanType()),
    (pa.string(), StringType()),
    (pa.timestamp("us", "UTC"), TimestampType()),
)


def spark_of(schema: pa.Schema) -> StructType:
    """Return the Spark schema of rows as the server sends them."""
    types = {str(arrow): spark for arrow, spark in _TYPES}
    return StructType([StructField(field.name, types[str(field.type)], field.nullable) for field in schema])


def arrow_of(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects of rows with this schema; raises InvalidJob."""
    types = {spark: arrow for arrow, spark in _TYPES}
    for field in schema.fields:
        if field.dataType not in types:
            raise InvalidJob(
                f"column '{field.name}' is {field.dataType.simpleString()}, and rows have "
                f"{', '.join(spark.simpleString() for spark in types)}: leave out the schema, and cast later"
            )
    return pa.schema([pa.field(field.name, types[field.dataType], field.nullable) for field in schema.fields])
