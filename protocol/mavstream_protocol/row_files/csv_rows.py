"""Rows of CSV for a stream, chunk by chunk; rows that cannot be read are handed on with line and column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from mavstream_protocol.errors import InvalidTuples, ProblemItem
from mavstream_protocol.row_files.cells import read_cells
from mavstream_protocol.row_files.csv_text import TextRows, read_text
from mavstream_protocol.row_files.reading import BadRow, Reading
from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_protocol.tuples import decode_batch


class CsvRows:
    """Parses lines of CSV with known columns to rows of a stream."""

    def __init__(self, names: Sequence[str], schema: Schema, reading: Reading) -> None:
        """Raises InvalidTuples for columns that the stream does not have, or that it needs."""
        self._names = tuple(names)
        self._schema = schema
        self._reading = reading
        self._nullable_text = any(one.nullable and one.type is FieldType.STRING for one in schema)
        _check_columns(self._names, schema)

    def parse(self, content: bytes, first_line: int) -> pa.RecordBatch:
        """Return the rows of complete lines that can be read, as a canonical batch."""
        rows = read_text(content, self._names, first_line, self._reading, self._nullable_text)
        arrays: dict[str, pa.Array] = {}
        faults: list[tuple[np.ndarray, Field, str]] = []
        for field in self._schema:
            if field.name not in self._names:
                continue
            values, bad = read_cells(field.type, _column(rows, field.name), self._reading)
            if bad is not None:
                faults.append((bad, field, f"is no {field.type.value}"))
            if not field.nullable and values.null_count:
                empty = values.is_null().to_numpy(zero_copy_only=False)
                faults.append((empty if bad is None else empty & ~bad, field, "is no value, which is needed"))
            arrays[field.name] = values
        good = self._told(rows, faults)
        batch = pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))
        return decode_batch(self._schema, batch if good is None else batch.filter(pa.array(good)))

    def _told(self, rows: TextRows, faults: list[tuple[np.ndarray, Field, str]]) -> np.ndarray | None:
        """Hand on the bad rows in the order of lines, each once, and return which rows are good."""
        bad_rows = {row.line: row for row in rows.bad}
        good: np.ndarray | None = None
        lines: list[int] = []
        for bad, field, reason in faults:
            if not bad.any():
                continue
            good = np.ones(len(bad), dtype=bool) if good is None else good
            lines = lines or rows.lines()
            for place in np.flatnonzero(bad & good).tolist():
                value = _column(rows, field.name)[place].as_py()
                bad_rows[lines[place]] = BadRow(lines[place], field.name, value or "", reason)
            good &= ~bad
        for line in sorted(bad_rows):
            self._reading.bad_rows.add(bad_rows[line])
        return good


def _column(rows: TextRows, name: str) -> pa.Array:
    found = rows.columns.column(name).combine_chunks()
    return found if isinstance(found, pa.Array) else found.chunk(0)


def _check_columns(names: Sequence[str], schema: Schema) -> None:
    known = ", ".join(schema.names)
    unknown = [name for name in names if name not in schema.names]
    missing = [one.name for one in schema if one.name not in names and not one.nullable]
    items = [
        ProblemItem(
            pointer=f"columns/{name}",
            code="unknown_field",
            detail=f"column '{name}' is not in the stream, which has {known}: rename it",
        )
        for name in unknown
    ]
    items += [
        ProblemItem(
            pointer=f"columns/{name}",
            code="missing_field",
            detail=f"there is no column '{name}', which the stream needs: there are {', '.join(names)}",
        )
        for name in missing
    ]
    if items:
        raise InvalidTuples(items)
