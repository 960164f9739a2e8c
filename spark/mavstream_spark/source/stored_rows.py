"""Rows that a server stores, page by page: those of a stream, or the results of a query."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from mavstream_spark.errors import DataError
from mavstream_spark.source.connection import Answer, Connection, RequestFailed, segment
from mavstream_spark.source.options import ReadOptions, Start

_LOG = logging.getLogger("mavstream.spark")

ARROW = "application/vnd.apache.arrow.stream"
_PAGE_ROWS = {"stream": 100_000, "query": 10_000}


class RowsLost(DataError):
    """Rows that were to be read are no longer stored."""

    code = "rows_lost"


class Extent(NamedTuple):
    """What there is to read."""

    schema: pa.Schema
    begin: int
    """The position of the oldest row that is stored."""
    end: int
    """The position of the next row to come."""

    def position(self, where: Start) -> int:
        """Return the position that an option means."""
        return self.begin if where == "earliest" else self.end if where == "latest" else where


@dataclass(slots=True)
class StoredRows:
    """Reads rows; positions are those of a stream's rows, or the offsets of a query's results."""

    options: ReadOptions
    connection: Connection

    @property
    def what(self) -> str:
        """What is read, for messages."""
        return f"{self.options.kind} '{self.options.name}'"

    def extent(self) -> Extent:
        """Return the schema, and which rows there are now; raises RequestFailed."""
        answer = self._page(None, 0)
        schema = pa.ipc.open_stream(answer.body).schema
        return Extent(schema, int(answer.headers["mavstream-next"]) + 1, int(answer.headers["mavstream-end"]))

    def read(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows from `start` to before `stop`; raises RequestFailed, RowsLost.

        Without `failOnDataLoss` rows that are lost are left out, with a warning.
        """
        position = start
        while position < stop:
            try:
                answer = self._page(position - 1, min(stop - position, _PAGE_ROWS[self.options.kind]))
            except RequestFailed as error:
                if error.problem in ("position_ahead", "offset_ahead"):
                    raise self._ahead(stop, str(error)) from None
                raise
            behind = int(answer.headers["mavstream-next"]) + 1
            if behind <= position:
                raise self._ahead(stop, f"its next row has position {answer.headers['mavstream-end']}")
            gap = answer.headers.get("mavstream-gap")
            if gap is not None:
                self._tell_loss(gap, answer.headers.get("mavstream-gap-reason", "retention"), stop)
            table = pa.ipc.open_stream(answer.body).read_all()
            # Behind a gap the page may have rows of the next partition.
            wanted = table.slice(0, max(table.num_rows - max(behind - stop, 0), 0))
            yield from wanted.to_batches()
            position = behind

    def _page(self, after: int | None, limit: int) -> Answer:
        kind, name = self.options.kind, segment(self.options.name)
        path = f"/v1/streams/{name}/tuples" if kind == "stream" else f"/v1/queries/{name}/results"
        params: dict[str, object] = {"limit": limit}
        if after is not None:
            params["after"] = after
        if self.options.metadata:
            params["metadata"] = "true"
        return self.connection.request("GET", path, params=params, accept=ARROW)

    def _tell_loss(self, gap: str, reason: str, stop: int) -> None:
        first, _, behind = gap.partition("-")
        last = min(int(behind), stop) - 1
        why = "are damaged" if reason == "damage" else "were removed by retention"
        lost = f"rows {first} to {last} of {self.what} {why} before they were read"
        if self.options.fail_on_loss:
            raise RowsLost(
                f"{lost}: retain rows for longer and start with a new checkpoint, or set option "
                "'failOnDataLoss' to 'false' to go on without them"
            )
        _LOG.warning("%s; 'failOnDataLoss' is 'false'", lost)

    def _ahead(self, stop: int, reason: str) -> RowsLost:
        return RowsLost(
            f"rows up to {stop - 1} of {self.what} were to be read, and {reason}: it was removed and made "
            "again, or this is another server; start with a new checkpoint"
        )
