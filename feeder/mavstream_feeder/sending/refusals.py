"""What the server refuses: frames to send again later, rows to leave out, or the end of the feed."""

from __future__ import annotations

import re

from mavstream_feeder.errors import RowsRefused
from mavstream_feeder.sending.feeds import Options
from mavstream_protocol import Problem
from mavstream_protocol.producer import Refusal, RefusalKind
from mavstream_protocol.producer.frames import without_rows

_INVALID_ROWS = "invalid_tuples"
_ROW = re.compile(r"rows/(\d+)(?:/|$)")


def handle_refusal(refusal: Refusal, options: Options) -> None:
    """Hold a stream for a transient refusal; leave out rows that are refused for good.

    Raises RowsRefused where that ends the feed.
    """
    window, problem = refusal.window, refusal.problem
    if refusal.kind is RefusalKind.TRANSIENT:
        window.hold()
        return
    if refusal.kind is RefusalKind.STREAM_GONE:
        window.abandon()
    if refusal.frame is not None:
        rows = _rows_named(problem)
        rest = without_rows(window.stream, refusal.frame, rows, options.format) if rows else None
        window.replace_next(rest)
        if options.skip_rejected and problem.code == _INVALID_ROWS:
            return
    raise RowsRefused(window.stream, problem)


def _rows_named(problem: Problem) -> set[int]:
    """Return the indexes of the rows that a problem points at."""
    found = (_ROW.match(item.pointer) for item in problem.errors)
    return {int(row[1]) for row in found if row is not None}
