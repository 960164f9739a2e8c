"""Conversion of columns from and to Arrow record batches, without copies where the layouts agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from mavstream_protocol.errors import InvalidTuples, ProblemItem
from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_server.columns.column import DTYPES, Column, Mask
from mavstream_server.columns.dictionary import Dictionary

ARROW_TYPES: dict[FieldType, Any] = {
    FieldType.INT: pa.int64(),
    FieldType.FLOAT: pa.float64(),
    FieldType.BOOL: pa.bool_(),
    FieldType.STRING: pa.dictionary(pa.int32(), pa.string()),
    FieldType.TIMESTAMP: pa.timestamp("us", "UTC"),
}

_FEW = 128  # rows


def arrow_schema(schema: Schema) -> Any:
    """Return the Arrow schema of the batches of `arrow_from_columns`."""
    return pa.schema([pa.field(f.name, ARROW_TYPES[f.type], f.nullable) for f in schema])


def columns_from_arrow(batch: Any, schema: Schema) -> dict[str, Column]:
    """Return a record batch's columns by field, in the order of a schema; arrays are not copied.

    Strings may be plain, large or dictionary-encoded. Timestamps of other units or without a time zone (taken
    as UTC) and smaller integers and floats are converted if nothing is lost. Everything else raises
    InvalidTuples, with an item per invalid field. Floats are not checked for being finite.
    """
    names = batch.schema.names
    if names == list(schema.names):
        try:
            return {f.name: _column(array, f) for f, array in zip(schema, batch.columns, strict=True)}
        except _UnfitError:
            pass  # reported below, together with all others
    columns: dict[str, Column] = {}
    errors = [
        _error_item(name, "unknown_field", f"the schema has no field {name!r}; omit it")
        for name in sorted(set(names) - set(schema.names))
    ]
    for field in schema:
        if names.count(field.name) != 1:
            got = "is missing" if field.name not in names else "is there several times"
            errors.append(_error_item(field.name, "missing_field", f"{field.name!r} {got}; send it once"))
            continue
        try:
            columns[field.name] = _column(batch.column(field.name), field)
        except _UnfitError as error:
            errors.append(_error_item(field.name, error.code, error.detail))
    if errors:
        raise InvalidTuples(errors)
    return columns


def arrow_from_columns(columns: Mapping[str, Column], schema: Schema) -> Any:
    """Return columns as a record batch of `arrow_schema`; strings stay codes with their dictionary."""
    return pa.record_batch([_array(columns[f.name], f.type) for f in schema], schema=arrow_schema(schema))


class _UnfitError(Exception):
    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


def _error_item(name: str, code: str, detail: str) -> ProblemItem:
    return ProblemItem(pointer=f"columns/{name}", code=code, detail=detail)


def _column(array: Any, field: Field) -> Column:
    if array.null_count and not field.nullable:
        row = array.is_null().index(True).as_py()
        raise _UnfitError("null_value", f"{field.name!r} is not nullable, got null at row {row}; fill it")
    if field.type is FieldType.STRING:
        return _text_column(array, field)
    wanted = ARROW_TYPES[field.type]
    if array.type != wanted:
        if not _widens(array.type, field.type):
            raise _mismatch(array, field)
        try:
            array = array.cast(wanted)
        except pa.ArrowInvalid as error:
            raise _UnfitError(
                "out_of_range", f"{field.name!r} cannot be converted to {field.type}: {error}"
            ) from error
    valid = _validity(array)
    if field.type is FieldType.BOOL:  # Arrow has bits, columns have bytes
        filled = array.fill_null(False) if valid is not None else array
        return Column(filled.to_numpy(zero_copy_only=False), valid)
    return Column(_fixed_width(array, DTYPES[field.type]), valid)


def _text_column(array: Any, field: Field) -> Column:
    type_ = array.type
    if not pa.types.is_dictionary(type_):
        if not (pa.types.is_string(type_) or pa.types.is_large_string(type_)):
            raise _mismatch(array, field)
        if len(array) <= _FEW:
            return _few_texts(array)
        array = array.dictionary_encode()
    elif not (pa.types.is_string(type_.value_type) or pa.types.is_large_string(type_.value_type)):
        raise _mismatch(array, field)
    texts = array.dictionary.to_pylist()
    valid = _validity(array)
    indices = array.indices
    if not pa.types.is_int32(indices.type):
        indices = indices.cast(pa.int32())
    codes = _fixed_width(indices, DTYPES[FieldType.STRING])
    if valid is not None:
        # The index of a null is undefined; a column guarantees a code that its dictionary has.
        codes = np.where(valid, codes, np.int32(0))
    if len(codes) and valid is None and (int(codes.min()) < 0 or int(codes.max()) >= len(texts)):
        raise _UnfitError("bad_code", f"{field.name!r} has indices beyond its dictionary; correct them")
    # A client's dictionary may have duplicates or nulls; `Dictionary` requires distinct texts.
    if None in texts or len(set(texts)) < len(texts):
        return _distinct(texts, codes, valid, field)
    return Column(codes, valid, Dictionary(texts))


def _few_texts(array: Any) -> Column:
    """Encode texts one by one, which for few rows is faster than vectorized calls."""
    texts: list[str | None] = array.to_pylist()
    distinct = [text for text in dict.fromkeys(texts) if text is not None]
    codes: dict[str | None, int] = {text: code for code, text in enumerate(distinct)} | {None: 0}
    return Column(
        np.array([codes[text] for text in texts], dtype=np.int32), _validity(array), Dictionary(distinct)
    )


def _distinct(texts: list[str | None], codes: Any, valid: Mask | None, field: Field) -> Column:
    dictionary, moved = Dictionary(), np.zeros(len(texts), dtype=np.int32)
    null = np.array([text is None for text in texts], dtype=bool)
    moved[~null] = dictionary.add_all([text for text in texts if text is not None])
    present = ~null[codes] if valid is None else valid & ~null[codes]
    if present.all():
        return Column(moved[codes], None, dictionary)
    if not field.nullable:
        row = int(np.argmin(present))
        raise _UnfitError("null_value", f"{field.name!r} is not nullable, got null at row {row}; fill it")
    return Column(moved[codes], present, dictionary)


def _widens(given: Any, type_: FieldType) -> bool:
    if type_ is FieldType.INT:
        return bool(pa.types.is_integer(given))
    if type_ is FieldType.FLOAT:
        return bool(pa.types.is_floating(given))
    return type_ is FieldType.TIMESTAMP and bool(pa.types.is_timestamp(given))


def _mismatch(array: Any, field: Field) -> _UnfitError:
    wanted = ARROW_TYPES[field.type]
    return _UnfitError(
        "type_mismatch", f"{field.name!r} is {field.type}: expected Arrow {wanted}, got {array.type}"
    )


def _validity(array: Any) -> Mask | None:
    if not array.null_count:
        return None
    valid: Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _fixed_width(array: Any, dtype: np.dtype[Any]) -> Any:
    """Return a view of the values buffer, including the undefined values of null rows."""
    if not len(array):
        return np.empty(0, dtype=dtype)
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)


def _array(column: Column, type_: FieldType) -> Any:
    mask = None if column.valid is None else ~column.valid
    if type_ is FieldType.STRING:
        assert column.dictionary is not None
        texts = pa.array(column.dictionary.values, pa.string())
        indices = pa.array(column.values, pa.int32(), mask=mask)
        return pa.DictionaryArray.from_arrays(indices, texts)
    if type_ is FieldType.BOOL or mask is None:
        return pa.array(column.values, ARROW_TYPES[type_], mask=mask)
    bits = pa.array(~mask).buffers()[1]
    values = np.ascontiguousarray(column.values)
    return pa.Array.from_buffers(ARROW_TYPES[type_], len(values), [bits, pa.py_buffer(values)])
