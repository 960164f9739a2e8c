"""Widening: rows that were sent before their stream got more fields get nulls in these."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from mavstream_protocol.schema import Field, FieldType
from mavstream_server.columns.column import DTYPES, Column, null_column
from mavstream_server.log import NewFrame
from mavstream_server.log.format.shared_columns import RowSlice


def null_columns(added: Sequence[Field], size: int) -> dict[str, Column]:
    """Return a column of nulls for each field."""
    return {field.name: null_column(DTYPES[field.type], size) for field in added}


def widened(frame: NewFrame, added: Sequence[Field]) -> NewFrame:
    """Return a frame that is queued with nulls in fields that its stream has got."""
    columns, size = frame.columns, frame.size
    # Frames of slices with different arrival times never wait, see `StreamWriter.join_last`.
    known = columns_of(columns) if isinstance(columns, list) else columns
    return frame._replace(columns={**known, **null_columns(added, size)})


def columns_of(slices: Sequence[RowSlice]) -> dict[str, Column]:
    """Return the rows of slices as columns."""
    columns = {}
    for index, field in enumerate(slices[0].columns.schema):
        if field.type is FieldType.STRING:
            parts = [shared.texts[index][start : start + size] for shared, start, size, _ in slices]
            columns[field.name] = Column.from_list(FieldType.STRING, list(chain.from_iterable(parts)))
        else:
            arrays = [shared.values(field.name)[start : start + size] for shared, start, size, _ in slices]
            columns[field.name] = Column(np.concatenate(arrays))
    return columns
