"""Schema inference: the stream that fits a file, for `mavstream feed --create`."""

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
    """Name and type of a column, and whether it may be null."""

    name: str
    type: pa.DataType
    nulls: bool


def infer_stream(name: str, path: Path, event_time: str | None = None) -> StreamSpec:
    """Return the stream that fits a file; raises UnreadableFile.

    For CSV and JSON lines the first rows are examined. Without `event_time`, the event time is the only
    timestamp column that is never null; if there are several or none, it is the arrival time.
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
        raise UnreadableFile(f"file '{path}' does not fit a stream '{name}': {reasons}") from None


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
    if kind_of(path) == "csv":
        # Complete the last line of the sample.
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
