"""Schema inference: the stream that fits a file, for `mavstream feed --create`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import orjson
import pyarrow as pa
import pyarrow.parquet
from pydantic import ValidationError

from mavstream_feeder.errors import UnreadableFile
from mavstream_feeder.input.files import column_names, csv_sample, kind_of
from mavstream_protocol import FieldSpec, FieldType, StreamSpec
from mavstream_protocol.model_errors import causes, quoted, sentence
from mavstream_protocol.row_files.guessing import guess_types
from mavstream_protocol.row_files.reading import Reading
from mavstream_protocol.tuples.arrow_types import field_type_of

_SAMPLE_BYTES = 4 << 20
_SAMPLE_LINES = 10_000


class _Column(NamedTuple):
    """Name and type of a column, and whether it may be null."""

    name: str
    type: pa.DataType
    nulls: bool


def infer_stream(name: str, path: Path, event_time: str | None = None) -> StreamSpec:
    """Return the stream that fits a file; see `inferred`. Raises UnreadableFile."""
    return inferred(name, path, event_time)[0]


def inferred(
    name: str, path: Path, event_time: str | None = None, reading: Reading | None = None
) -> tuple[StreamSpec, list[str]]:
    """Return the stream that fits a file, and remarks on cells that do not fit. Raises UnreadableFile.

    For CSV and JSON lines the first rows are examined. Without `event_time`, the event time is the only
    timestamp column that is never null; if there are several or none, it is the arrival time.
    """
    remarks: list[str] = []
    try:
        if kind_of(path) == "csv":
            fields, remarks = _csv_fields(path, event_time, reading or Reading())
        else:
            columns = _parquet_columns(path) if kind_of(path) == "parquet" else _columns(_sample(path))
            fields = [
                FieldSpec(name=each.name, type=_type_of(path, each.name, each.type), nullable=each.nulls)
                for each in columns
            ]
    except (OSError, pa.ArrowException, ValueError) as error:
        raise UnreadableFile(f"file '{path}' cannot be read: {str(error)[:300]}") from None
    if event_time is None:
        times = [each.name for each in fields if each.type is FieldType.TIMESTAMP and not each.nullable]
        event_time = times[0] if len(times) == 1 else None
    return stream_of_fields(name, f"file '{path}'", fields, event_time), remarks


def stream_of_fields(
    name: str, source: str, fields: Sequence[FieldSpec], event_time: str | None
) -> StreamSpec:
    """Return a stream with fields that were found in a source; raises UnreadableFile."""
    try:
        return StreamSpec(name=name, fields=tuple(fields), event_time=event_time)
    except ValidationError as error:
        reasons = "; ".join(sentence(item, quoted(item, "the stream")) for item in causes(error.errors()))
        raise UnreadableFile(f"{source} does not fit a stream '{name}': {reasons}") from None


def fields_of_lines(source: str, lines: Iterable[bytes]) -> list[FieldSpec]:
    """Return the fields of JSON lines; raises UnreadableFile."""
    try:
        columns = _columns(_table_of(lines))
    except (pa.ArrowException, ValueError) as error:
        raise UnreadableFile(f"{source} cannot be read: {str(error)[:300]}") from None
    return [
        FieldSpec(name=each.name, type=_type_of(source, each.name, each.type), nullable=each.nulls)
        for each in columns
    ]


def _csv_fields(path: Path, event_time: str | None, reading: Reading) -> tuple[list[FieldSpec], list[str]]:
    names = column_names(path, reading)
    if reading.time_format is not None and reading.time_format.startswith("unix") and event_time is None:
        raise UnreadableFile(
            f"--time-format {reading.time_format} needs to know which column has the times: give "
            f"--event-time with one of {', '.join(names)}"
        )
    unix = () if event_time is None else (event_time,)
    guesses = guess_types(csv_sample(path, reading, _SAMPLE_BYTES), reading, unix)
    fields = [
        # The rows without an event time are bad ones.
        FieldSpec(name=name, type=guess.type, nullable=guess.nullable and name != event_time)
        for name, guess in guesses.items()
    ]
    return fields, [f"file '{path}': {guess.remark}" for guess in guesses.values() if guess.remark]


def _columns(sample: pa.Table) -> list[_Column]:
    return [
        _Column(name, values.type, values.null_count > 0)
        for name, values in zip(sample.column_names, sample.columns, strict=True)
    ]


def _parquet_columns(path: Path) -> list[_Column]:
    """Return the columns; nulls are known from the file's statistics, and expected without them."""
    with pyarrow.parquet.ParquetFile(path) as file:
        schema, metadata = file.schema_arrow, file.metadata
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]

    def nulls(index: int) -> bool:
        parts = [group.column(index).statistics for group in groups]
        return any(part is None or not part.has_null_count or part.null_count > 0 for part in parts)

    # Nested columns have several leaves, and no field can hold them: `_type_of` refuses them.
    flat = len(schema) == metadata.num_columns
    return [
        _Column(field.name, field.type, field.nullable and flat and nulls(index))
        for index, field in enumerate(schema)
    ]


def _sample(path: Path) -> pa.Table:
    with path.open("rb") as file:
        return _table_of(islice(file, _SAMPLE_LINES))


def _table_of(lines: Iterable[bytes]) -> pa.Table:
    rows = [orjson.loads(line) for line in lines if line.strip()]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError("expected a JSON object in each line")
    names = dict.fromkeys(name for row in rows for name in row)
    return _with_timestamps(pa.table({name: [row.get(name) for row in rows] for name in names}))


def _with_timestamps(table: pa.Table) -> pa.Table:
    for index, name in enumerate(table.column_names):
        if pa.types.is_string(table.column(index).type):
            for zone in ("UTC", None):
                try:
                    times = table.column(index).cast(pa.timestamp("us", zone))
                except pa.ArrowInvalid:
                    continue
                table = table.set_column(index, name, times)
                break
    return table


def _type_of(source: object, column: str, kind: pa.DataType) -> FieldType:
    type_ = field_type_of(kind)
    if type_ is not None:
        return type_
    raise UnreadableFile(
        f"column '{column}' of '{source}' is of type {kind}, which no field can hold: "
        "write integers, floats, booleans, texts or timestamps"
    )
