"""What stream a file would make: field names and types for `mavstream feed --create`."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import NamedTuple

import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from pydantic import ValidationError

from mavstream_feeder.errors import UnreadableFile
from mavstream_feeder.input.files import kind_of
from mavstream_protocol import FieldSpec, FieldType, StreamSpec
from mavstream_protocol.tuples.arrow_types import field_type_of

_SAMPLE_BYTES = 4 << 20
_SAMPLE_LINES = 10_000


class _Column(NamedTuple):
    """What a file says of one column."""

    name: str
    type: pa.DataType
    nulls: bool


def infer_stream(name: str, path: Path, event_time: str | None = None) -> StreamSpec:
    """Return the stream that fits a file; raises UnreadableFile.

    CSV and JSON lines are judged by their first rows. Without `event_time`, the only timestamp column that is
    never null tells the time of rows; where there are several or none, their arrival does.
    """
    try:
        columns = _parquet_columns(path) if kind_of(path) == "parquet" else _columns(_sample(path))
    except (OSError, pa.ArrowException, ValueError) as error:
        raise UnreadableFile(f"file '{path}' cannot be read: {str(error)[:300]}") from None
    fields = [
        FieldSpec(name=column.name, type=_type_of(path, column.name, column.type), nullable=column.nulls)
        for column in columns
    ]
    if event_time is None:
        times = [each.name for each in fields if each.type is FieldType.TIMESTAMP and not each.nullable]
        event_time = times[0] if len(times) == 1 else None
    try:
        return StreamSpec(name=name, fields=tuple(fields), event_time=event_time)
    except ValidationError as error:
        reasons = "; ".join(item["msg"] for item in error.errors())
        raise UnreadableFile(f"file '{path}' does not make a stream '{name}': {reasons}") from None


def _columns(sample: pa.Table) -> list[_Column]:
    return [
        _Column(name, values.type, values.null_count > 0)
        for name, values in zip(sample.column_names, sample.columns, strict=True)
    ]


def _parquet_columns(path: Path) -> list[_Column]:
    """Tell nulls by the file's statistics, as it may be too large to be read; without them, expect some."""
    with pyarrow.parquet.ParquetFile(path) as file:
        schema, metadata = file.schema_arrow, file.metadata
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]

    def nulls(index: int) -> bool:
        parts = [group.column(index).statistics for group in groups]
        return any(part is None or not part.has_null_count or part.null_count > 0 for part in parts)

    # Columns of columns have several leaves, and no field can hold them: `_type_of` refuses them by name.
    flat = len(schema) == metadata.num_columns
    return [
        _Column(field.name, field.type, field.nullable and flat and nulls(index))
        for index, field in enumerate(schema)
    ]


def _sample(path: Path) -> pa.Table:
    if kind_of(path) == "csv":
        # Whole lines only: the last one of a sample may be cut.
        with path.open("rb") as file:
            text = file.read(_SAMPLE_BYTES)
            rest = file.readline()
        return pyarrow.csv.read_csv(
            pa.BufferReader(text + rest),
            convert_options=pyarrow.csv.ConvertOptions(strings_can_be_null=True),
        )
    with path.open("rb") as file:
        rows = [orjson.loads(line) for line in islice(file, _SAMPLE_LINES) if line.strip()]
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    return _with_timestamps(pa.table(columns))


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


def _type_of(path: Path, column: str, kind: pa.DataType) -> FieldType:
    type_ = field_type_of(kind)
    if type_ is not None:
        return type_
    raise UnreadableFile(
        f"column '{column}' of file '{path}' is of type {kind}, which no field can hold: "
        "write integers, floats, booleans, texts or timestamps"
    )
