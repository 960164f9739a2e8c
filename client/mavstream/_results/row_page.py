"""Pages of a stream's rows, as they were appended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mavstream._errors import unreadable_answer
from mavstream._results.html import table_html
from mavstream._transport.steps import Reply
from mavstream_protocol.tuples import rows_of
from mavstream_protocol.wire.results import GapReason

_SHOWN = 50
"""Rows in a notebook."""


@dataclass(frozen=True, slots=True)
class RowPage:
    """Rows of a stream at consecutive positions up to `next`."""

    batch: pa.RecordBatch
    """The rows as Arrow."""
    next: int
    """The `after` of the next page: the position of the last row so far, -1 if there is none."""
    end: int
    """Position of the next row to come, when the page was requested."""
    watermark: str | None
    """The watermark of the stream at `end`; None before its first row."""
    complete: bool
    """Whether the stream ends at `end`: no rows will follow."""
    gap: tuple[int, int] | None
    """Requested positions before the rows that are no longer stored (start, stop), excluding the stop."""
    gap_reason: GapReason | None
    """Why they are missing."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows as dicts, with timestamps as text."""
        return rows_of(self.batch)

    def to_pandas(self) -> Any:
        """Return the rows as a pandas data frame."""
        return self.batch.to_pandas()

    def _repr_html_(self) -> str:
        return table_html(self.batch.schema.names, [list(row.values()) for row in self.rows[:_SHOWN]])


def read_row_page(reply: Reply) -> RowPage:
    """Parse the answer of the server; raises ServerProblem for one that is not understood."""
    headers = reply.headers
    gap = headers.get("mavstream-gap")
    try:
        table = pa.ipc.open_stream(reply.content).read_all().combine_chunks()
        batches = table.to_batches()
        start, _, stop = (gap or "0-0").partition("-")
        return RowPage(
            batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema),
            int(headers["mavstream-next"]),
            int(headers["mavstream-end"]),
            headers.get("mavstream-watermark"),
            headers["mavstream-complete"] == "true",
            None if gap is None else (int(start), int(stop)),
            None if gap is None else GapReason(headers["mavstream-gap-reason"]),
        )
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise unreadable_answer(str(error)) from None
