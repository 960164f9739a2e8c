"""Writes, exactly once: tasks stage their rows on the server, the driver's commit publishes them at once.

A batch is published under the name of the writer and its number. The server stores both with the rows, and
ignores a batch that it has already. Stages of tasks that failed are never published, and expire.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from mavstream_spark.errors import InvalidJob
from mavstream_spark.source.connection import Connection, RequestFailed, segment
from mavstream_spark.source.options import WriteOptions
from mavstream_spark.source.stored_rows import ARROW

_LOG = logging.getLogger("mavstream.spark")

STAGE_BYTES = 4 << 20
"""About how many bytes of rows a task sends at once."""
_QUERY_ID = "sql.streaming.queryId"
"""The property of a task that names its streaming query, the same after a restart from the checkpoint."""


@dataclass
class Staged(WriterCommitMessage):
    """What one task has staged."""

    stages: tuple[str, ...]
    query: str | None
    """The id of the streaming query that the task belongs to."""


class _Writer:
    """What both kinds of writers do: stage, publish, give up."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.connection = Connection(options.server)
        self.path = f"/v1/streams/{segment(options.stream)}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a task, under names that no other attempt has."""
        attempt, stages = f"spark_{uuid.uuid4().hex}", []
        for number, rows in enumerate(_portions(iterator, STAGE_BYTES)):
            stages.append(f"{attempt}_{number}")
            body = pa.BufferOutputStream()
            with pa.ipc.new_stream(body, rows.schema) as stream:
                stream.write_table(rows)
            path = f"{self.path}/stages/{stages[-1]}"
            self.connection.request("PUT", path, body=body.getvalue().to_pybytes(), kind=ARROW)
        context = TaskContext.get()
        return Staged(tuple(stages), None if context is None else context.getLocalProperty(_QUERY_ID))

    def publish(
        self, messages: Sequence[WriterCommitMessage | None], writer: str, number: int, *, ends: bool
    ) -> None:
        """Publish what tasks have staged as one batch; one that was published before is ignored."""
        batch = {"producer": writer, "sequence": number + 1, "stages": _stages(messages), "end": ends}
        self.connection.request("POST", f"{self.path}/batches", body=json.dumps(batch).encode())

    def discard(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what tasks have staged; what cannot be removed now expires."""
        try:
            for name in _stages(messages):
                self.connection.request("DELETE", f"{self.path}/stages/{name}")
        except RequestFailed as error:
            _LOG.warning("stages of stream '%s' are left to expire: %s", self.options.stream, error)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish a micro-batch."""
        self.publish(messages, self.options.writer or _named_after_query(messages), batchId, ends=False)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Give up a micro-batch."""
        self.discard(messages)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes a data frame as one batch."""

    def __init__(self, options: WriteOptions) -> None:
        super().__init__(options)
        self.name = options.writer or f"spark_{uuid.uuid4().hex}"

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the batch; a writer that does not number its batches has no other."""
        number = self.options.batch
        self.publish(messages, self.name, number or 0, ends=number is None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Give up the batch."""
        self.discard(messages)


def _named_after_query(messages: Sequence[WriterCommitMessage | None]) -> str:
    for message in messages:
        if isinstance(message, Staged) and message.query:
            return f"spark_{message.query.replace('-', '')}"
    raise InvalidJob("the id of the streaming query is not known: name the writer with option 'writer'")


def _stages(messages: Sequence[WriterCommitMessage | None]) -> list[str]:
    return [name for message in messages if isinstance(message, Staged) for name in message.stages]


def _portions(batches: Iterator[pa.RecordBatch], most_bytes: int) -> Iterator[pa.Table]:
    """Join small batches and divide large ones, into portions of about so many bytes."""
    waiting: list[pa.RecordBatch] = []
    nbytes = 0
    for batch in batches:
        rows = max(batch.num_rows * most_bytes // max(batch.nbytes, 1), 1)
        for start in range(0, batch.num_rows, rows):
            waiting.append(batch.slice(start, rows))
            nbytes += waiting[-1].nbytes
            if nbytes >= most_bytes:
                yield pa.Table.from_batches(waiting)
                waiting, nbytes = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)
