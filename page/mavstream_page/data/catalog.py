"""The streams and stored tables that SQL and plans can name."""

from __future__ import annotations

from collections.abc import Iterable

from mavstream_protocol.schema import Field, Schema
from mavstream_protocol.sql import Catalog
from mavstream_protocol.streams import FieldSpec
from mavstream_protocol.typed_plan import StreamShape
from mavstream_protocol.wire.resources import StreamInfo, TableInfo


def catalog_of(streams: Iterable[StreamInfo], tables: Iterable[TableInfo]) -> Catalog:
    """Return the catalog for planning without a server."""
    return Catalog(
        {each.name: StreamShape(_schema(each.spec.fields), each.spec.event_time) for each in streams},
        {each.name: _schema(each.fields) for each in tables},
    )


def _schema(fields: Iterable[FieldSpec]) -> Schema:
    return Schema(tuple(Field(each.name, each.type, each.nullable) for each in fields))
