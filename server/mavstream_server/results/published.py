"""Result logs that the API process writes: of queries that no engine runs."""

from __future__ import annotations

import asyncio
import logging

import numpy as np
import pyarrow as pa

from mavstream_server.columns.arrow import columns_from_arrow
from mavstream_server.columns.batch import Batch
from mavstream_server.core.errors import storage_problem
from mavstream_server.core.settings import Settings
from mavstream_server.log import LogError, LogWriter, Sync
from mavstream_server.log.format.description import LogDescription
from mavstream_server.log.format.provenance import encode_provenance, latest_time
from mavstream_server.log.options import result_log_options
from mavstream_server.log.retention import Retention
from mavstream_server.results.query_results import AnsweringQuery

_LOG = logging.getLogger("mavstream.queries")


class PublishedLogs:
    """The open result logs, by query. A log is used by one caller at a time."""

    def __init__(self, settings: Settings) -> None:
        self._directory = settings.results_directory
        sync = Sync.GROUP if settings.delivery == "sync" else Sync.NEVER
        self._options = result_log_options(settings.result_bytes, sync)
        self._retention = Retention(max_age_ns=settings.result_time * 1000, max_bytes=settings.result_bytes)
        self._writers: dict[str, LogWriter] = {}

    def end(self, query: AnsweringQuery) -> int:
        """Return the offset of the next result; raises StorageFailed."""
        return self._writer(query).end

    async def append(self, query: AnsweringQuery, rows: pa.RecordBatch, now_ns: int) -> None:
        """Append the rows of a batch, of which readers see all or none; raises StorageFull, StorageFailed."""
        try:
            await asyncio.to_thread(self._append, query, rows, now_ns)
        except (OSError, LogError) as error:
            self.close(query.id)  # opened again, it has what was written
            raise storage_problem(f"result log of query '{query.id}'", error) from error

    def _append(self, query: AnsweringQuery, rows: pa.RecordBatch, now_ns: int) -> None:
        count, writer = rows.num_rows, self._writer(query)
        batch = Batch(columns_from_arrow(rows, query.schema), count, np.full(count, now_ns))
        writer.append(
            batch.columns,
            batch.size,
            now_ns,
            producer=query.epoch,
            sequence=query.revision,
            provenance=encode_provenance(batch, ()),
            latest=latest_time(batch),
        )
        writer.flush()
        self._retention.apply(writer, None, now_ns)

    def _writer(self, query: AnsweringQuery) -> LogWriter:
        writer = self._writers.get(query.id)
        if writer is None:
            path = self._directory / query.id
            try:
                writer = LogWriter(path, LogDescription(query.schema), self._options)
            except (OSError, LogError) as error:
                raise storage_problem(f"result log of query '{query.id}'", error) from error
            self._writers[query.id] = writer
        return writer

    def close(self, id_: str) -> None:
        """Close the log of a query, if it is open."""
        writer = self._writers.pop(id_, None)
        if writer is not None:
            try:
                writer.close()
            except OSError:
                _LOG.exception("result log could not be closed", extra={"query": id_})

    def close_all(self) -> None:
        """Close all logs."""
        for id_ in tuple(self._writers):
            self.close(id_)
