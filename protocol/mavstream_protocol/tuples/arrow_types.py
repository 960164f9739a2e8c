"""What Arrow types mean: the field that a column can be taken as."""

from __future__ import annotations

import pyarrow as pa

from mavstream_protocol.schema import FieldType


def is_text(kind: pa.DataType) -> bool:
    """Whether values are texts, in whichever way they are laid out."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def field_type_of(kind: pa.DataType) -> FieldType | None:
    """Return the type of a field that holds such values, or None; where all are null, any would do."""
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
