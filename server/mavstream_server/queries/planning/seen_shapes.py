"""Shapes as a registered query sees them: without fields that what it reads has got since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mavstream_protocol.schema import Schema
from mavstream_protocol.typed_plan import StreamShape, TypedPlan
from mavstream_server.catalog.seen_fields import Seen


def seen_shapes(
    streams: Mapping[str, StreamShape], seen: Mapping[str, Seen] | None
) -> Mapping[str, StreamShape]:
    """Return what a query can read; `seen` are the fields that it sees, by name, if not all."""
    narrowed = {
        name: replace(streams[name], schema=_seen(streams[name].schema, fields))
        for name, fields in (seen or {}).items()
        if name in streams
    }
    return {**streams, **narrowed} if narrowed else streams


def _seen(schema: Schema, seen: Seen) -> Schema:
    """Return the fields that are seen, in the order of names; columns that are gone are left out."""
    if isinstance(seen, int):
        return Schema(schema.fields[:seen])
    return Schema(tuple(field for name in seen if (field := schema.get(name)) is not None))


def fields_seen(plan: TypedPlan) -> dict[str, Seen]:
    """Return which fields a plan sees of each stream and of the results of each query."""
    return {
        source.stream: len(source.schema) if source.query is None else source.schema.names
        for source in plan.sources
    }
