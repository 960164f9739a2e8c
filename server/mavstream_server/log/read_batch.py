"""Read batches: rows that a cursor has read, gathered once for all cursors that read the same rows."""

from __future__ import annotations

from collections.abc import Sequence

from mavstream_server.columns.column import Column, Ints
from mavstream_server.log.cursor import Span
from mavstream_server.log.gather import gather, gather_arrivals, gather_positions, gather_watermarks


class ReadBatch:
    """Spans of a log with the arrays that were gathered from them so far; the arrays are read-only."""

    __slots__ = ("_arrivals", "_columns", "_positions", "_watermarks", "rows", "spans")

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = spans
        self.rows = sum([stop - start for _, start, stop in spans])
        self._columns: dict[str, Column] = {}
        self._arrivals: Ints | None = None
        self._positions: Ints | None = None
        self._watermarks: Ints | None = None

    def columns(self, names: Sequence[str]) -> dict[str, Column]:
        """Return the named columns of all rows; there must be at least one row."""
        known = self._columns
        missing = [name for name in names if name not in known] if known else names
        if missing:
            known.update(gather(self.spans, missing))
        return {name: known[name] for name in names}

    @property
    def arrivals(self) -> Ints:
        """The arrival time of each row, in ns."""
        if self._arrivals is None:
            self._arrivals = gather_arrivals(self.spans)
        return self._arrivals

    @property
    def positions(self) -> Ints:
        """The position of each row."""
        if self._positions is None:
            self._positions = gather_positions(self.spans)
        return self._positions

    def watermarks(self, times: Ints) -> Ints:
        """Return the watermark (us) directly before each row of a log with event time; `times` are theirs."""
        if self._watermarks is None:
            self._watermarks = gather_watermarks(self.spans, times)
        return self._watermarks
