"""The same readings as CSV, JSON lines and Parquet, for tests of the feeder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet

from mavstream_protocol import StreamSpec
from mavstream_protocol.tuples import decode_rows

READINGS = StreamSpec.model_validate(
    {
        "name": "readings",
        "fields": [
            {"name": "at", "type": "timestamp"},
            {"name": "home", "type": "int"},
            {"name": "room", "type": "string", "nullable": True},
            {"name": "celsius", "type": "float"},
            {"name": "on", "type": "bool"},
        ],
        "event_time": "at",
    }
)
ROWS: list[dict[str, Any]] = [
    {"at": "2026-03-01T00:00:00Z", "home": 1, "room": "hall", "celsius": 20.5, "on": True},
    {"at": "2026-03-01T00:00:01.250000Z", "home": 2, "room": None, "celsius": -3.0, "on": False},
    {"at": "2026-03-01T00:00:02Z", "home": 3, "room": "cellar", "celsius": 7.25, "on": True},
]
CSV = """at,home,room,celsius,on
2026-03-01T00:00:00Z,1,hall,20.5,true
2026-03-01T00:00:01.25Z,2,,-3,false
2026-03-01T00:00:02Z,3,cellar,7.25,true
"""


def written(folder: Path, kind: str) -> Path:
    path = folder / f"readings.{kind}"
    match kind:
        case "csv":
            path.write_text(CSV)
        case "jsonl":
            path.write_bytes(b"\n".join(map(orjson.dumps, ROWS)) + b"\n")
        case "parquet":
            batch = decode_rows(READINGS.schema(), ROWS)
            pyarrow.parquet.write_table(pa.Table.from_batches([batch]), path)
    return path
