"""Parses tables from CSV: cells are text first, so that errors can name row and column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_protocol.tuples import decode_batch
from mavstream_protocol.tuples.columns import check_cell
from mavstream_protocol.tuples.findings import MOST_TOLD, Findings, refuse_body

# Patterns of the cells of each type. Numbers with leading zeros are text: 007 is not 7.
FORMS = {
    FieldType.INT: r"^-?(0|[1-9][0-9]*)$",
    FieldType.FLOAT: r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$",
    FieldType.BOOL: r"^(?i:true|false)$",
}


def read_csv(body: bytes) -> pa.Table:
    """Return the cells as text; an empty one is null, `""` an empty text. Raises InvalidTuples."""
    # Loaded here: most servers never get a table as CSV.
    from pyarrow import csv

    try:
        # Arrow's parser needs the names of columns that it must not convert, so the header is read first.
        names = csv.open_csv(pa.BufferReader(body)).schema.names
        return csv.read_csv(
            pa.BufferReader(body),
            read_options=csv.ReadOptions(use_threads=False),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        ).combine_chunks()
    except (pa.ArrowException, ValueError) as error:
        reason = str(error).splitlines()[0][:200]
        raise refuse_body(
            "unreadable_file",
            f"the body cannot be read as CSV: {reason}; write the names of the fields, then a line per row",
        ) from None


def typed_csv(schema: Schema, texts: pa.Table) -> pa.RecordBatch:
    """Return the canonical batch of cells; raises InvalidTuples with row and column of each invalid cell."""
    findings = Findings()
    names, arrays = [], []
    for name, column in zip(texts.column_names, texts.columns, strict=True):
        field = schema.get(name)
        array = column.combine_chunks()
        names.append(name)
        arrays.append(array if field is None else _typed(field, array, findings))
    findings.raise_if_any()
    return decode_batch(schema, pa.RecordBatch.from_arrays(arrays, names))


def _typed(field: Field, texts: pa.Array, findings: Findings) -> pa.Array:
    """Return the cells of a column as values; invalid ones are added to the findings."""
    # Imported where it is used: it takes long to load, and only tables from CSV need it.
    import pyarrow.compute as pc

    if field.type is FieldType.TIMESTAMP:
        numbers = pc.match_substring_regex(texts, FORMS[FieldType.INT])
        return texts.cast(pa.int64()) if _all(numbers) else texts
    form = FORMS.get(field.type)
    if form is None:
        return texts
    fits = pc.match_substring_regex(texts, form)
    if not _all(fits):
        wrong = np.flatnonzero(pc.invert(fits).fill_null(False).to_numpy(zero_copy_only=False))
        for row in wrong[:MOST_TOLD].tolist():
            check_cell(field, row, texts[row].as_py(), findings)
        return texts
    if field.type is FieldType.BOOL:
        return pc.equal(pc.utf8_lower(texts), "true")
    try:
        return texts.cast(pa.int64() if field.type is FieldType.INT else pa.float64())
    except pa.ArrowInvalid:
        for row, text in enumerate(texts.to_pylist()):
            if text is not None:
                check_cell(field, row, int(text) if field.type is FieldType.INT else float(text), findings)
        return texts


def _all(fits: pa.Array) -> bool:
    import pyarrow.compute as pc

    return pc.all(fits, min_count=0).as_py() is not False
