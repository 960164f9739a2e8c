"""Split conditions: distribute the rows of one file over several streams."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from mavstream_feeder.errors import InvalidSplit
from mavstream_protocol import ExpressionError, Schema
from mavstream_protocol.expressions.parser import parse_predicate
from mavstream_server.columns.arrow import columns_from_arrow
from mavstream_server.expressions import Predicate, RowErrors, compile_predicate

_WRITTEN = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(\S.*?)\s*", re.DOTALL)
_WHERE = re.compile(r"\s+where\s+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Branch:
    """A stream that gets some of a file's rows."""

    stream: str
    where: str | None = None
    """Condition for its rows, an expression; None for all rows that are left."""


def parse_split(text: str) -> tuple[str, Branch]:
    """Parse `hot=readings.csv where celsius > 30` into file and branch. Raises InvalidSplit.

    `rest=readings.csv` takes the rows that no earlier branch has taken.
    """
    written = _WRITTEN.fullmatch(text)
    if written is None:
        raise InvalidSplit(
            f"expected a split such as 'hot=readings.csv where temperature > 30', got '{text}'"
        )
    file, *rest = _WHERE.split(written[2], maxsplit=1)
    return file, Branch(written[1], rest[0] if rest else None)


class Part(NamedTuple):
    """Rows of a batch for one stream."""

    stream: str
    rows: pa.RecordBatch
    indexes: np.ndarray
    """Their indexes in the batch that was split."""


class Splitter:
    """Assigns each row to the first branch whose condition is true, as the operator `split` does.

    Rows that no branch takes are counted, also those whose conditions are null or cannot be computed.
    """

    def __init__(self, branches: Sequence[Branch], schema: Schema) -> None:
        self.streams = tuple(branch.stream for branch in branches)
        self.unmatched = 0
        self._schema = schema
        self._branches = [(branch.stream, _compiled(branch, schema)) for branch in branches]

    def parts(self, rows: pa.RecordBatch) -> list[Part]:
        """Return the rows of each stream, in order; streams without rows are left out."""
        left = np.arange(rows.num_rows)
        found: list[Part] = []
        columns = columns_from_arrow(rows, self._schema)
        for stream, where in self._branches:
            if not len(left):
                break
            matched = left
            if where is not None:
                chosen = np.zeros(rows.num_rows, dtype=bool)
                chosen[where(columns, rows.num_rows, RowErrors())] = True
                matched = left[chosen[left]]
                left = left[~chosen[left]]
            else:
                left = left[:0]
            if len(matched):
                found.append(Part(stream, _taken(rows, matched), matched))
        self.unmatched += len(left)
        return found


def _compiled(branch: Branch, schema: Schema) -> Predicate | None:
    if branch.where is None:
        return None
    try:
        return compile_predicate(parse_predicate(branch.where, {field.name: field for field in schema}))
    except ExpressionError as error:
        raise InvalidSplit(
            f"the split condition of stream '{branch.stream}', '{branch.where}', cannot be used: {error}"
        ) from None


def _taken(rows: pa.RecordBatch, indexes: np.ndarray) -> pa.RecordBatch:
    return rows if len(indexes) == rows.num_rows else rows.take(pa.array(indexes))
