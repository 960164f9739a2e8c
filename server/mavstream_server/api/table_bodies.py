"""Bodies of stored tables: CSV, JSON, Parquet or Arrow, parsed into the columns of the table's fields."""

from __future__ import annotations

from typing import Any

from mavstream_protocol.errors import InvalidObject, InvalidTuples
from mavstream_protocol.quantities import format_size
from mavstream_protocol.schema import Schema
from mavstream_protocol.table_rows.formats import MOST_ROWS, READERS, TooManyRows, read_rows
from mavstream_protocol.table_rows.media import ARROW, ARROW_FILE, CSV, JSON, NDJSON, PARQUET
from mavstream_server.api.bodies import UnsupportedType, media_type
from mavstream_server.columns.arrow import columns_from_arrow
from mavstream_server.core.errors import TooLarge
from mavstream_server.tables.store import TableRows

_EXAMPLE = "room,threshold\nattic,31.5\nkitchen,\n"
_ROWS = [{"room": "attic", "threshold": 31.5}, {"room": "kitchen", "threshold": None}]
_BINARY = {"type": "string", "format": "binary"}
TABLE_TYPES: dict[str, Any] = {
    CSV: {
        "schema": {"type": "string", "description": "Names in the first line; an empty cell is null"},
        "examples": {"rooms": {"value": _EXAMPLE}},
    },
    JSON: {
        "schema": {
            "description": "A list of rows or an object of columns; or one of them under `rows` or `columns`",
            "anyOf": [
                {"type": "array", "items": {"type": "object"}},
                {"type": "object", "additionalProperties": {"type": "array"}},
                {"type": "object", "properties": {"rows": {"type": "array", "items": {"type": "object"}}}},
                {"type": "object", "properties": {"columns": {"type": "object"}}},
            ],
        },
        "examples": {
            "rows": {"value": _ROWS},
            "columns": {"value": {"room": ["attic", "kitchen"], "threshold": [31.5, None]}},
        },
    },
    NDJSON: {"schema": {"type": "string", "description": "One JSON object per line"}},
    PARQUET: {"schema": {**_BINARY, "description": "A Parquet file"}},
    ARROW: {"schema": {**_BINARY, "description": "An Arrow IPC stream"}},
    ARROW_FILE: {"schema": {**_BINARY, "description": "An Arrow IPC file (Feather)"}},
}


class InvalidTable(InvalidObject):
    """Raised for rows that are not a valid table, or do not match its fields."""

    code = "invalid_table"
    title = "The rows do not fit the table"


def read_table(content_type: str, body: bytes, schema: Schema | None, limit: int) -> TableRows:
    """Parse the rows of a body; without a schema, the fields are inferred.

    Raises InvalidTable that names rows and columns, TooLarge, UnsupportedType. Slow for large bodies: run it
    in a thread.
    """
    kind = media_type(content_type)
    if kind not in READERS:
        shown = f"got '{kind[:60]}'" if kind else "got none"
        raise UnsupportedType(f"tables are of type {', '.join(READERS)}, {shown}: set Content-Type")
    try:
        found, batch = read_rows(kind, body, schema, limit)
    except InvalidTuples as error:
        raise InvalidTable(error.items) from None
    except TooManyRows as error:
        raise TooLarge(
            f"the table takes {format_size(error.nbytes)} in memory for {error.rows} rows or more, and this "
            f"server takes {format_size(limit)} and {MOST_ROWS} rows: put less, or raise "
            "MAVSTREAM_MAX_TABLE_BYTES",
            code="table_too_large",
        ) from None
    return TableRows(found, columns_from_arrow(batch, found), batch.num_rows)
