"""Metadata of rows as columns: with it a client decides on time and lateness as the engine does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mavstream_protocol.instants import FIRST_INSTANT, LAST_INSTANT
from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_server.columns.batch import BEGIN_OF_TIME
from mavstream_server.columns.column import Column, Ints
from mavstream_server.core.errors import Conflict
from mavstream_server.log import Frame, gather
from mavstream_server.log.cursor import Span
from mavstream_server.log.gather import gather_positions

METADATA = (
    Field("_position", FieldType.INT),
    Field("_time", FieldType.TIMESTAMP, nullable=True),
    Field("_arrival", FieldType.TIMESTAMP),
    Field("_watermark", FieldType.TIMESTAMP, nullable=True),
)
"""The further columns: position, or offset of a result; time; arrival; and the watermark ahead of the row."""


def with_metadata(schema: Schema, what: str) -> Schema:
    """Return a schema with the further columns; raises Conflict if it has a field of such a name."""
    taken = [field.name for field in METADATA if field.name in schema]
    if taken:
        raise Conflict(
            f"{what} has a field '{taken[0]}', which is a column of the metadata: read it without metadata",
            code="metadata_name_taken",
        )
    return Schema((*schema, *METADATA))


def gather_rows(spans: Sequence[Span], schema: Schema) -> dict[str, Column]:
    """Return the columns of one or more rows, with metadata if the schema has it."""
    if schema.fields[-len(METADATA) :] != METADATA:
        return gather(spans, schema.names)
    columns = gather(spans, schema.names[: -len(METADATA)])
    columns["_position"] = Column(gather_positions(spans))
    rows = [[times[start:stop] for times in _times(frame)] for frame, start, stop in spans]
    for field, parts in zip(METADATA[1:], zip(*rows, strict=True), strict=True):
        columns[field.name] = _instants(np.concatenate(parts))
    return columns


def _times(frame: Frame) -> tuple[Ints, Ints, Ints]:
    """Return time, arrival and watermark of each row of a frame, in microseconds."""
    traced = frame.provenance
    if traced is not None:
        none = np.full(frame.rows, BEGIN_OF_TIME)
        time, watermark = traced.time, traced.row_watermark
        return (
            none if time is None else time,
            traced.arrival // 1000,
            none if watermark is None else watermark,
        )
    stamps = frame.stamps
    arrivals = np.full(frame.rows, frame.arrival) if stamps is None else stamps
    arrivals = arrivals // 1000
    # Without event time, the time of a row is its arrival, which is the watermark as well.
    time, watermarks = frame.time, frame.row_watermarks()
    if time is None or watermarks is None:
        return arrivals, arrivals, arrivals
    return time, arrivals, watermarks


def _instants(values: Ints) -> Column:
    """Return a column of times; null for those that no text can express, as before the first row."""
    valid = (values >= FIRST_INSTANT) & (values <= LAST_INSTANT)
    return Column(values, None if valid.all() else valid)
