"""The media types of tables, and which a file has."""

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
"""What a file is, by the ending of its name."""
