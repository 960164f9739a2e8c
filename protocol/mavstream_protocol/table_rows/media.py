"""Media types of tables, and the media type of a file."""

from __future__ import annotations

CSV = "text/csv"
JSON = "application/json"
NDJSON = "application/x-ndjson"
PARQUET = "application/vnd.apache.parquet"
ARROW = "application/vnd.apache.arrow.stream"
ARROW_FILE = "application/vnd.apache.arrow.file"

ENDINGS = {
    ".csv": CSV,
    ".json": JSON,
    ".ndjson": NDJSON,
    ".jsonl": NDJSON,
    ".parquet": PARQUET,
    ".arrow": ARROW_FILE,
    ".feather": ARROW_FILE,
    ".arrows": ARROW,
}
"""Media types by the extension of a file name."""
