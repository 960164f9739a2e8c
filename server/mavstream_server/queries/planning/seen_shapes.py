"""Shapes as a registered query sees them: without fields that its streams have got since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mavstream_protocol.schema import Schema
from mavstream_protocol.typed_plan import StreamShape, TypedPlan


def seen_shapes(
    streams: Mapping[str, StreamShape], seen: Mapping[str, int] | None
) -> Mapping[str, StreamShape]:
    """Return what a query can read; `seen` is how many fields it sees, by stream, if not all."""
    narrowed = {
        name: replace(streams[name], schema=Schema(streams[name].schema.fields[:fields]))
        for name, fields in (seen or {}).items()
        if name in streams
    }
    return {**streams, **narrowed} if narrowed else streams


def fields_seen(plan: TypedPlan) -> dict[str, int]:
    """Return how many fields a plan sees of each stream."""
    return {source.stream: len(source.schema) for source in plan.sources if source.query is None}
