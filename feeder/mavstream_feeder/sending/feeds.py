"""Feeds: a source with its rate and the streams that get its rows; and the options of a feeder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from mavstream_feeder.input.sources import FileSource
from mavstream_feeder.input.splitting import Splitter
from mavstream_feeder.pacing.arrivals import Arrivals, RecordedArrivals, Times, arrivals_of
from mavstream_feeder.pacing.lags import Lags
from mavstream_feeder.pacing.rates import AnyRate, Rate, Recorded
from mavstream_feeder.reports import StreamReport, milliseconds
from mavstream_protocol.producer import SendWindow
from mavstream_protocol.wire.feed import Format

LINGER = 0.000_85
"""Seconds that a row may wait for others that share its message: a millisecond at most, with what timers are
off."""
FRAME_ROWS = 4096
# Frames of a stream that may be in flight. At one in a millisecond these are enough while the server, or the
# machine, is busy for a moment; more would only pile up small frames at a server that is behind.
_MAX_IN_FLIGHT = 64


@dataclass(frozen=True, slots=True)
class Options:
    """How a feeder sends."""

    producer: str | None = None
    """The producer's name at the server; a random one if none is given."""
    format: Format = Format.ARROW
    seed: int = 0
    linger: float = LINGER
    frame_rows: int = FRAME_ROWS
    end: bool = True
    """Whether to tell the server at the end that no more rows follow, which closes open windows."""
    skip_rejected: bool = False
    """Whether rows that the server refuses are left out and counted, instead of ending the feed."""


class Feed:
    """Rows of a source at a rate, with a send window for each stream that they go to."""

    def __init__(
        self,
        name: str,
        source: FileSource,
        rate: AnyRate,
        splitter: Splitter | None = None,
        lags: Lags | None = None,
    ) -> None:
        if isinstance(rate, Recorded) and not source.recorded:
            raise ValueError(f"'{name}' is fed as recorded: make its source with recorded={rate!r}")
        self.name = name
        self.source = source
        self.schema = 0
        """A number, the same for feeds whose streams have the same fields."""
        self.rate = rate
        self.splitter = splitter
        streams = (name,) if splitter is None else splitter.streams
        self.windows = {stream: SendWindow(stream, _MAX_IN_FLIGHT) for stream in streams}
        self._lags = lags or Lags()
        self.lag_numbers = {stream: self._lags.add_stream() for stream in streams}
        """The numbers of its streams among the lags."""
        self.scheduled = False
        self.over = False
        """Whether the source has no more rows."""

    @property
    def open(self) -> bool:
        """Whether all its streams may send, since the next row may be for any of them."""
        return all(window.open for window in self.windows.values())

    @property
    def groupable(self) -> bool:
        """Whether it may join a send group: it is not split, and its rows have due times."""
        return self.splitter is None and not (isinstance(self.rate, Rate) and self.rate.flat_out)

    def arrivals(self, start: float, seed: int) -> Arrivals:
        """Return the due times of its rows, for a feed that starts at `start`."""
        rate = self.rate
        if isinstance(rate, Recorded):
            if rate.origin is None and not self.source.counts_seconds:
                rate = replace(rate, origin=self.source.begin())
            return RecordedArrivals(rate, start, self.source.ahead)
        return arrivals_of(rate, start, seed, self.name)

    def parts(
        self, rows: pa.RecordBatch, times: Times
    ) -> Sequence[tuple[SendWindow, pa.RecordBatch, Times, int]]:
        """Return for each stream its rows, their due times, and the rows of the source ahead of the first."""
        base = self.source.taken - rows.num_rows
        if self.splitter is None:
            return ((self.windows[self.name], rows, times, base),)
        return [
            (self.windows[part.stream], part.rows, times[part.indexes], base + int(part.indexes[0]))
            for part in self.splitter.parts(rows)
        ]

    def reports(self, *, waiting: bool) -> dict[str, StreamReport]:
        """Return the metrics of each of its streams so far."""
        unsettled = [window.first_source_row for window in self.windows.values()]
        settled = min((row for row in unsettled if row is not None), default=self.source.taken)
        position = self.source.position_at(settled)
        return {
            stream: StreamReport(
                sent=window.rows_added,
                acked=window.rows_acked,
                rejected=window.rows_rejected,
                lag_p50_ms=milliseconds(self._lags.quantile(0.5, self.lag_numbers[stream])),
                lag_p99_ms=milliseconds(self._lags.quantile(0.99, self.lag_numbers[stream])),
                lag_max_ms=milliseconds(self._lags.worst(self.lag_numbers[stream])),
                waiting=waiting,
                feed=self.name,
                file=self.source.name,
                row=position.row,
                passes=position.passes,
                over=self.over,
            )
            for stream, window in self.windows.items()
        }
