"""Readers of CSV, JSON lines and Parquet files, in batches of a stream's schema.

Columns are matched by name. As on the wire, a column that the stream does not have is an error, and one that
is missing is null if the stream allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias, TypeVar

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from mavstream_feeder.errors import UnreadableFile
from mavstream_protocol import FieldType, InvalidTuples, Schema
from mavstream_protocol.tuples import decode_batch, decode_lines

BATCH_ROWS = 16_384
_BLOCK_BYTES = 1 << 20
_TEXT = pa.string()
_CSV_TYPES = MappingProxyType(
    {
        FieldType.INT: pa.int64(),
        FieldType.FLOAT: pa.float64(),
        FieldType.BOOL: pa.bool_(),
        FieldType.STRING: _TEXT,
        # Arrow would guess the unit of timestamps from the first block and fail on a finer one later.
        FieldType.TIMESTAMP: _TEXT,
    }
)

Batches: TypeAlias = Iterator[pa.RecordBatch]
Result = TypeVar("Result")


def column_names(path: Path) -> tuple[str, ...]:
    """Return the names of a file's columns (JSON lines: of its first line). Raises UnreadableFile."""
    return _guarded(path, lambda: _NAMES[kind_of(path)](path))


def read_batches(path: Path, schema: Schema) -> Batches:
    """Yield the rows of a file in canonical batches of `schema`. Raises UnreadableFile."""
    batches = _guarded(path, lambda: _READERS[kind_of(path)](path, schema))
    while (batch := _guarded(path, lambda: next(batches, None))) is not None:
        if batch.num_rows:
            yield batch


def row_count(path: Path) -> int | None:
    """Return the number of rows of a Parquet file; None for other files. Raises UnreadableFile."""
    if kind_of(path) != "parquet":
        return None
    return _guarded(path, lambda: int(pyarrow.parquet.read_metadata(path).num_rows))


def kind_of(path: Path) -> str:
    """Return `csv`, `jsonl` or `parquet`, by the file's extension. Raises UnreadableFile."""
    kind = _ENDINGS.get(path.suffix.lower())
    if kind is None:
        known = ", ".join(_ENDINGS)
        raise UnreadableFile(f"expected a file that ends in {known}, got '{path}'")
    return kind


def _guarded(path: Path, read: Callable[[], Result]) -> Result:
    try:
        return read()
    except FileNotFoundError:
        raise UnreadableFile(f"file '{path}' does not exist") from None
    except InvalidTuples as error:
        raise UnreadableFile(f"file '{path}' does not fit the stream: {error}") from None
    except (OSError, pa.ArrowException, ValueError) as error:
        raise UnreadableFile(f"file '{path}' cannot be read: {str(error)[:300]}") from None


def _csv_names(path: Path) -> tuple[str, ...]:
    with path.open("rb") as file:
        header = file.readline()
    return tuple(pyarrow.csv.read_csv(pa.BufferReader(header)).schema.names)


def _read_csv(path: Path, schema: Schema) -> Batches:
    nullable_text = any(field.nullable and field.type is FieldType.STRING for field in schema)
    options = pyarrow.csv.ConvertOptions(
        column_types={field.name: _CSV_TYPES[field.type] for field in schema},
        strings_can_be_null=nullable_text,
        quoted_strings_can_be_null=False,
        true_values=["true", "True", "TRUE", "1"],
        false_values=["false", "False", "FALSE", "0"],
    )
    reading = pyarrow.csv.ReadOptions(block_size=_BLOCK_BYTES)
    with pyarrow.csv.open_csv(str(path), reading, convert_options=options) as reader:
        for batch in reader:
            yield decode_batch(schema, _with_instants(schema, batch))


def _with_instants(schema: Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    for index, name in enumerate(batch.schema.names):
        field = schema.get(name)
        if field is not None and field.type is FieldType.TIMESTAMP:
            batch = batch.set_column(index, name, _instants(batch.column(index)))
    return batch


def _instants(texts: pa.Array) -> pa.Array:
    """Cast texts to timestamps where Arrow can; others are left to the protocol."""
    texts = pc.if_else(pc.equal(texts, ""), None, texts)
    for kind in (pa.int64(), pa.timestamp("us", "UTC"), pa.timestamp("us")):
        try:
            return texts.cast(kind)
        except pa.ArrowInvalid:
            continue
    return texts


def _lines_names(path: Path) -> tuple[str, ...]:
    with path.open("rb") as file:
        first = next((line for line in file if line.strip()), b"{}")
    row = orjson.loads(first)
    if not isinstance(row, dict):
        raise UnreadableFile(f"file '{path}' has a first line that is not a JSON object: write one per line")
    return tuple(row)


def _read_lines(path: Path, schema: Schema) -> Batches:
    with path.open("rb") as file:
        while lines := list(islice(file, BATCH_ROWS)):
            yield decode_lines(schema, b"".join(lines))


def _parquet_names(path: Path) -> tuple[str, ...]:
    return tuple(pyarrow.parquet.read_schema(path).names)


def _read_parquet(path: Path, schema: Schema) -> Batches:
    with pyarrow.parquet.ParquetFile(path) as file:
        # One row group at a time, so that no more than one is in memory.
        for group in range(file.num_row_groups):
            for batch in file.iter_batches(batch_size=BATCH_ROWS, row_groups=[group], use_threads=False):
                yield decode_batch(schema, batch)


_ENDINGS = MappingProxyType(
    {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".pq": "parquet"}
)
_NAMES = MappingProxyType({"csv": _csv_names, "jsonl": _lines_names, "parquet": _parquet_names})
_READERS: MappingProxyType[str, Callable[[Path, Schema], Batches]] = MappingProxyType(
    {"csv": _read_csv, "jsonl": _read_lines, "parquet": _read_parquet}
)
