"""Reads: a batch of what is stored, and streams whose offsets are positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from mavstream_spark.source.schemas import arrow_of
from mavstream_spark.source.stored_rows import StoredRows

FEW_ROWS = 10_000
"""Rows that one task reads as fast as several would."""


@dataclass
class Positions(InputPartition):
    """A partition: rows from `start` to before `stop`."""

    start: int
    stop: int


def partitions_of(start: int, stop: int, most: int) -> list[Positions]:
    """Divide a range into at most so many parts of nearly the same size; small ranges have fewer."""
    rows = max(stop - start, 0)
    count = min(most, -(-rows // FEW_ROWS))
    bounds = [start + rows * index // count for index in range(count + 1)] if count else []
    return [Positions(first, behind) for first, behind in pairwise(bounds)]


class _Reader:
    """What both kinds of readers do in tasks."""

    def __init__(self, rows: StoredRows, schema: StructType) -> None:
        self.rows = rows
        self.options = rows.options
        self.layout = arrow_of(schema)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition, which Spark takes as they are."""
        if isinstance(partition, Positions):
            for batch in self.rows.read(partition.start, partition.stop):
                columns = [batch.column(name) for name in self.layout.names]
                yield pa.RecordBatch.from_arrays(columns, schema=self.layout)


class BatchReader(_Reader, DataSourceReader):
    """Reads rows that are stored when the read is planned."""

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the rows between `from` and `to`."""
        extent, start, stop = self.rows.extent(), self.options.start, self.options.stop
        first = extent.position("earliest" if start is None else start)
        return partitions_of(first, extent.position(stop), self.options.partitions)


class StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads rows in micro-batches. An offset is `{"position": N}`: that of the next row."""

    _target: int | None = None
    """Where a query with the trigger availableNow ends."""
    _end: int | None = None
    """The end of the rows when it was last looked up."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return the offset of a query that starts without a checkpoint."""
        start = self.options.start
        return {"position": self.rows.extent().position("latest" if start is None else start)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of a micro-batch."""
        most = self.options.most_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Take note of the rows that there are, behind which the query ends."""
        self._target = self.rows.extent().end

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Return where the next micro-batch ends."""
        position = int(start["position"])
        self._end = self.rows.extent().end
        end = self._end if self._target is None else self._target
        if isinstance(limit, ReadMaxRows):
            end = min(end, position + limit.max_rows)
        return {"position": max(end, position)}

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802 - Spark's name
        """Return the end of the rows, for the progress of the query."""
        return None if self._end is None else {"position": self._end}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Divide the rows of a micro-batch."""
        return partitions_of(int(start["position"]), int(end["position"]), self.options.partitions)

    def stop(self) -> None:
        """Close the connection."""
        self.rows.connection.close()
