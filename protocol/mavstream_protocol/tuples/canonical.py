"""The one form that all encodings of tuples meet in: an Arrow record batch of the stream's schema."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from types import MappingProxyType

import pyarrow as pa

from mavstream_protocol.schema import FieldType, Schema

ARROW_TYPES = MappingProxyType(
    {
        FieldType.INT: pa.int64(),
        FieldType.FLOAT: pa.float64(),
        FieldType.BOOL: pa.bool_(),
        FieldType.STRING: pa.string(),
        FieldType.TIMESTAMP: pa.timestamp("us", "UTC"),
    }
)


@lru_cache(maxsize=1024)
def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of a canonical batch: same names and order, nullability as declared."""
    return pa.schema([pa.field(field.name, ARROW_TYPES[field.type], field.nullable) for field in schema])


def canonical_batch(schema: Schema, arrays: Sequence[pa.Array]) -> pa.RecordBatch:
    """Return the batch of columns that already have their canonical types and equal lengths."""
    return pa.RecordBatch.from_arrays(list(arrays), schema=arrow_schema(schema))
