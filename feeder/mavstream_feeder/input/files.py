"""Readers of CSV, JSON lines and Parquet files, in batches of a stream's schema.

Columns are matched by name. As on the wire, a column that the stream does not have is an error, and one that
is missing is null if the stream allows it. How CSV is written, and what becomes of rows that cannot be read,
is said by a `Reading`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias, TypeVar

import orjson
import pyarrow as pa
import pyarrow.parquet

from mavstream_feeder.errors import UnreadableFile
from mavstream_protocol import InvalidTuples, Schema
from mavstream_protocol.row_files.csv_rows import CsvRows
from mavstream_protocol.row_files.csv_text import TextRows, read_header, read_text
from mavstream_protocol.row_files.json_lines import JsonRows
from mavstream_protocol.row_files.names import column_names as names_of_headers
from mavstream_protocol.row_files.reading import BadRowFound, Reading
from mavstream_protocol.tuples import decode_batch

BATCH_ROWS = 16_384
_BLOCK_BYTES = 1 << 20
_PLAIN = Reading()

Batches: TypeAlias = Iterator[pa.RecordBatch]
Result = TypeVar("Result")


def column_names(path: Path, reading: Reading = _PLAIN) -> tuple[str, ...]:
    """Return the names of a file's columns (JSON lines: of its first line). Raises UnreadableFile."""
    return _guarded(path, lambda: _NAMES[kind_of(path)](path, reading))


def read_batches(path: Path, schema: Schema, reading: Reading = _PLAIN) -> Batches:
    """Yield the rows of a file in canonical batches of `schema`. Raises UnreadableFile."""
    batches = _guarded(path, lambda: _READERS[kind_of(path)](path, schema, reading))
    while (batch := _guarded(path, lambda: next(batches, None))) is not None:
        if batch.num_rows:
            yield batch


def csv_sample(path: Path, reading: Reading, size: int) -> TextRows:
    """Return the first rows of a CSV file as text. Raises UnreadableFile."""

    def read() -> TextRows:
        names = _csv_names(path, reading)
        with path.open("rb") as file:
            file.readline()
            # Complete the last line of the sample.
            content = file.read(size) + file.readline()
        return read_text(content, names, 2, reading, text_can_be_null=True)

    return _guarded(path, read)


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
    except BadRowFound as error:
        raise UnreadableFile(f"file '{path}': {error}") from None
    except InvalidTuples as error:
        raise UnreadableFile(f"file '{path}' does not fit the stream: {error}") from None
    except (OSError, pa.ArrowException, ValueError) as error:
        raise UnreadableFile(f"file '{path}' cannot be read: {str(error)[:300]}") from None


def _csv_names(path: Path, reading: Reading) -> tuple[str, ...]:
    with path.open("rb") as file:
        return names_of_headers(read_header(file.readline(), reading), reading.rename)


def _read_csv(path: Path, schema: Schema, reading: Reading) -> Batches:
    rows = CsvRows(_csv_names(path, reading), schema, reading)
    line = 2
    with path.open("rb") as file:
        file.readline()
        while content := file.read(_BLOCK_BYTES) + file.readline():
            batch = rows.parse(content, line)
            # Batches as of the other formats, since what is taken from one is a slice of it.
            for begin in range(0, batch.num_rows, BATCH_ROWS):
                yield batch.slice(begin, BATCH_ROWS)
            line += content.count(b"\n")


def _lines_names(path: Path, _: Reading) -> tuple[str, ...]:
    with path.open("rb") as file:
        first = next((line for line in file if line.strip()), b"{}")
    row = orjson.loads(first)
    if not isinstance(row, dict):
        raise UnreadableFile(f"file '{path}' has a first line that is not a JSON object: write one per line")
    return tuple(row)


def _read_lines(path: Path, schema: Schema, reading: Reading) -> Batches:
    rows = JsonRows(schema, reading)
    line = 1
    with path.open("rb") as file:
        while lines := list(islice(file, BATCH_ROWS)):
            yield rows.parse(b"".join(lines), line)
            line += len(lines)


def _parquet_names(path: Path, _: Reading) -> tuple[str, ...]:
    return tuple(pyarrow.parquet.read_schema(path).names)


def _read_parquet(path: Path, schema: Schema, _: Reading) -> Batches:
    with pyarrow.parquet.ParquetFile(path) as file:
        # One row group at a time, so that no more than one is in memory.
        for group in range(file.num_row_groups):
            for batch in file.iter_batches(batch_size=BATCH_ROWS, row_groups=[group], use_threads=False):
                yield decode_batch(schema, batch)


_ENDINGS = MappingProxyType(
    {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".pq": "parquet"}
)
_NAMES = MappingProxyType({"csv": _csv_names, "jsonl": _lines_names, "parquet": _parquet_names})
_READERS: MappingProxyType[str, Callable[[Path, Schema, Reading], Batches]] = MappingProxyType(
    {"csv": _read_csv, "jsonl": _read_lines, "parquet": _read_parquet}
)
