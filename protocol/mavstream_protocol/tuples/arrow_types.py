"""Maps Arrow types to the field types that a column converts to."""

from __future__ import annotations

import pyarrow as pa

from mavstream_protocol.schema import FieldType


def is_text(kind: pa.DataType) -> bool:
    """Whether values are texts, in whichever way they are laid out."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def field_type_of(kind: pa.DataType) -> FieldType | None:
    """Return the field type for values of an Arrow type, or None; an all-null column fits every type."""
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_integer(value):
        return FieldType.INT
    if pa.types.is_floating(value):
        return FieldType.FLOAT
    if pa.types.is_boolean(value):
        return FieldType.BOOL
    if pa.types.is_timestamp(value):
        return FieldType.TIMESTAMP
    return FieldType.STRING if is_text(value) or pa.types.is_null(value) else None
