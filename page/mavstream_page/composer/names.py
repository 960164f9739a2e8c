"""What SQL can name, for completion: key words, functions, and what a server has."""

from __future__ import annotations

from typing import Any

from mavstream_protocol.expressions.functions import AGGREGATES, FUNCTIONS
from mavstream_protocol.schema import Schema
from mavstream_protocol.sql import Catalog
from mavstream_protocol.sql.tokens import RESERVED

_UNUSED = {
    *("window", "intersect", "order", "limit", "offset", "into", "values", "right", "full", "cross"),
    *("natural", "anti", "semi"),
}
"""Reserved words that a continuous query has no use for."""
_MORE = {
    *("group by", "union all", "tumble", "hop", "session", "rows", "table", "descriptor", "interval"),
    *("millisecond", "second", "minute", "hour", "day"),
}
KEY_WORDS = tuple(sorted((RESERVED - _UNUSED) | _MORE))


def names_of(catalog: Catalog) -> dict[str, Any]:
    """Return all names: key words, functions by kind, and columns by stream, query or table."""
    sources = {
        name: _source("stream" if shape.is_stream else "query", shape.schema)
        for name, shape in catalog.streams.items()
    }
    sources |= {name: _source("table", schema) for name, schema in catalog.tables.items()}
    functions = dict.fromkeys(FUNCTIONS, "function") | dict.fromkeys(AGGREGATES, "aggregate")
    return {"keywords": list(KEY_WORDS), "functions": functions, "sources": sources}


def _source(kind: str, schema: Schema) -> dict[str, Any]:
    return {"kind": kind, "columns": {each.name: each.type.value for each in schema}}
