"""Readers of CSV and Parquet files in pieces of a stream's schema, which name the rows that do not fit.

Rows are counted from 1; the header of a CSV file is not one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from mavstream_protocol import FieldType, InvalidTuples, ProblemItem, Schema
from mavstream_protocol.table_rows.csv_cells import typed_csv
from mavstream_protocol.tuples import decode_batch

MOST_ERRORS = 10
"""Reading ends when so many were found."""
_BLOCK_BYTES = 1 << 20
_PIECE_ROWS = 16_384
_ROW = re.compile(r"rows/(\d+)(?:/.*)?")
_LINE = re.compile(r"Row #(\d+)")


class RowFile:
    """A file with rows for a stream."""

    def __init__(self, path: Path, name: str, schema: Schema) -> None:
        """`name` is what the file is called; its extension tells the format. Raises ValueError."""
        self._path = path
        self._schema = schema
        kind = name.lower().rpartition(".")[2]
        if kind not in ("csv", "parquet"):
            raise ValueError(f"{name} has an unknown format: it must end in .csv or .parquet")
        self._is_csv = kind == "csv"
        self.rows = 0
        """How many rows were read so far."""
        self.errors: list[str] = []
        """What does not fit the stream, by row."""

    def pieces(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that fit in batches of the schema, from the start; fills `rows` and `errors`."""
        self.rows, self.errors = 0, []
        try:
            for read in self._csv() if self._is_csv else self._parquet():
                try:
                    yield self._canonical(read)
                except InvalidTuples as error:
                    self._note(error.items)
                self.rows += read.num_rows
                if len(self.errors) >= MOST_ERRORS or any(not text.startswith("row") for text in self.errors):
                    return
        except (pa.ArrowException, OSError, ValueError) as error:
            reason = str(error).splitlines()[0][:300]
            # Arrow counts the lines of a CSV file, and the first one is the header.
            self.errors.append(_LINE.sub(lambda found: f"row {int(found[1]) - 1}", reason))

    def _note(self, items: tuple[ProblemItem, ...]) -> None:
        for item in items:
            found = _ROW.fullmatch(item.pointer)
            row = f"row {self.rows + int(found[1]) + 1}: " if found else ""
            self.errors.append(f"{row}{item.detail}")
        del self.errors[MOST_ERRORS:]

    def _csv(self) -> Iterator[pa.RecordBatch]:
        reading = csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES)
        parsing = csv.ParseOptions(newlines_in_values=True)
        with csv.open_csv(self._path, reading, parsing) as header:
            names = header.schema.names
        # Cells are text first, so that errors can name row and column.
        converting = csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        with csv.open_csv(self._path, reading, parsing, converting) as reader:
            yield from reader

    def _canonical(self, read: pa.RecordBatch) -> pa.RecordBatch:
        return (_from_text if self._is_csv else decode_batch)(self._schema, read)

    def _parquet(self) -> Iterator[pa.RecordBatch]:
        with parquet.ParquetFile(self._path) as file:
            # One row group at a time, so that no more than one is in memory.
            for group in range(file.num_row_groups):
                yield from file.iter_batches(_PIECE_ROWS, row_groups=[group], use_threads=False)


def _from_text(schema: Schema, texts: pa.RecordBatch) -> pa.RecordBatch:
    for index, name in enumerate(texts.schema.names):
        field = schema.get(name)
        if field is not None and field.type is FieldType.STRING and not field.nullable:
            # As `mavstream feed` reads it: where text cannot be null, an empty cell is an empty text.
            texts = texts.set_column(index, name, pc.fill_null(texts.column(index), ""))
    table = pa.Table.from_batches([texts])
    try:
        return typed_csv(schema, table)
    except InvalidTuples as error:
        raise InvalidTuples(_by_column(schema, table) or error.items) from None


def _by_column(schema: Schema, texts: pa.Table) -> list[ProblemItem]:
    """Return the errors of all columns: a batch as a whole is refused for the first kind of error alone."""
    found: list[ProblemItem] = []
    for field in schema:
        if field.name in texts.column_names:
            try:
                typed_csv(Schema((field,)), texts.select([field.name]))
            except InvalidTuples as error:
                found += error.items
    return sorted(found, key=lambda item: int(match[1]) if (match := _ROW.fullmatch(item.pointer)) else -1)
