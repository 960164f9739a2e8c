"""Conversions between text and values in which Spark differs from the service.

They run as Arrow functions in Python, once per distinct value of a batch, with the protocol's own semantics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from mavstream_protocol.expressions.conversions import (
    bool_of_text,
    float_of_text,
    int_of_text,
    text_of_float,
    text_of_timestamp,
    timestamp_of_text,
)
from mavstream_protocol.schema import FieldType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READERS = {
    FieldType.INT: "mavstream_int_of_text",
    FieldType.FLOAT: "mavstream_float_of_text",
    FieldType.BOOL: "mavstream_bool_of_text",
    FieldType.TIMESTAMP: "mavstream_timestamp_of_text",
}
"""Functions that parse text; timestamps become microseconds, booleans 0 and 1."""
WRITERS = {
    FieldType.FLOAT: "mavstream_text_of_float",
    FieldType.TIMESTAMP: "mavstream_text_of_timestamp",
}
"""Functions that format values."""

# Name, conversion of one value, and result type in Spark and in Arrow.
_FUNCTIONS: tuple[tuple[str, Callable[[Any], Any], str, pa.DataType], ...] = (
    (READERS[FieldType.INT], int_of_text, "bigint", pa.int64()),
    (READERS[FieldType.FLOAT], float_of_text, "double", pa.float64()),
    (READERS[FieldType.BOOL], bool_of_text, "bigint", pa.int64()),
    (READERS[FieldType.TIMESTAMP], timestamp_of_text, "bigint", pa.int64()),
    (WRITERS[FieldType.FLOAT], text_of_float, "string", pa.string()),
    (WRITERS[FieldType.TIMESTAMP], text_of_timestamp, "string", pa.string()),
)


def register_text_casts(spark: SparkSession) -> None:
    """Register the functions with a session, once."""
    from pyspark.sql.pandas.functions import arrow_udf

    if spark.catalog.functionExists(READERS[FieldType.INT]):
        return
    # pyspark reads the kind of function from its annotations, which its type stubs do not know.
    make: Any = arrow_udf
    for name, convert, spark_type, arrow_type in _FUNCTIONS:
        spark.udf.register(name, make(_over_batches(convert, arrow_type), spark_type))


def _over_batches(convert: Callable[[Any], Any], type_: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    def converted(values: pa.Array) -> pa.Array:
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.timestamp("us", values.type.tz)).view(pa.int64())
        return _each(values, convert, type_)

    return converted


def _each(values: pa.Array, convert: Callable[[Any], Any], type_: pa.DataType) -> pa.Array:
    encoded = pc.dictionary_encode(values)
    made = [None if value is None else convert(value) for value in encoded.dictionary.to_pylist()]
    found = [int(value) if isinstance(value, bool) else value for value in made]
    return pa.array(found, type_).take(encoded.indices)
