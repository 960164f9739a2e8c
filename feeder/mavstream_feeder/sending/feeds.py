"""What a feeder knows of each stream, and how it was asked to send."""

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
from mavstream_feeder.sending.lane import Lane
from mavstream_protocol.wire.feed import Format

LINGER = 0.000_85
"""Tuples that fall due within this many seconds of each other may travel together: a millisecond at most,
with what timers are off."""
FRAME_ROWS = 4096
# Frames of a stream that may be under way. At one in a millisecond these are enough while the server, or the
# machine, looks elsewhere for a moment; more would only pile up small frames before a server that is behind.
_FRAMES = 64


@dataclass(frozen=True, slots=True)
class Options:
    """How a feeder sends."""

    producer: str | None = None
    """The name that the server knows it by; a fresh one if none is given."""
    format: Format = Format.ARROW
    seed: int = 0
    linger: float = LINGER
    frame_rows: int = FRAME_ROWS
    end: bool = True
    """Whether to tell the server at the end that no more rows come, which closes open windows."""
    skip_rejected: bool = False
    """Whether rows that the server refuses are left out and counted, instead of ending the feed."""


class Feed:
    """Rows of a source at a rate, with a lane for each stream that they go to."""

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
        self.kind = 0
        """The same for feeds whose streams have the same fields."""
        self.rate = rate
        self.splitter = splitter
        streams = (name,) if splitter is None else splitter.streams
        self.lanes = {stream: Lane(stream, _FRAMES) for stream in streams}
        self._lags = lags or Lags()
        self.numbers = {stream: self._lags.add_stream() for stream in streams}
        """What its streams are called among the lags."""
        self.scheduled = False
        self.over = False
        """Whether the source has no more rows."""

    @property
    def open(self) -> bool:
        """Whether new frames may be made, for whichever stream the next rows are."""
        return all(lane.open for lane in self.lanes.values())

    @property
    def sociable(self) -> bool:
        """Whether its rows may travel with those of others: it is not split, and they fall due at times."""
        return self.splitter is None and not (isinstance(self.rate, Rate) and self.rate.flat_out)

    def arrivals(self, start: float, seed: int) -> Arrivals:
        """Return when its rows fall due, from the moment it joins."""
        rate = self.rate
        if isinstance(rate, Recorded):
            if rate.origin is None and not self.source.counts_seconds:
                rate = replace(rate, origin=self.source.begin())
            return RecordedArrivals(rate, start, self.source.ahead)
        return arrivals_of(rate, start, seed, self.name)

    def parts(self, rows: pa.RecordBatch, times: Times) -> Sequence[tuple[Lane, pa.RecordBatch, Times, int]]:
        """Return for each stream its rows, their due times, and the rows of the source ahead of the first."""
        base = self.source.taken - rows.num_rows
        if self.splitter is None:
            return ((self.lanes[self.name], rows, times, base),)
        return [
            (self.lanes[part.stream], part.rows, times[part.places], base + int(part.places[0]))
            for part in self.splitter.parts(rows)
        ]

    def reports(self, *, waiting: bool) -> dict[str, StreamReport]:
        """Return what was done so far, by stream."""
        unsettled = [lane.first_place for lane in self.lanes.values() if lane.first_place is not None]
        place = self.source.place_at(min(unsettled, default=self.source.taken))
        return {
            stream: StreamReport(
                sent=lane.rows_sent,
                acked=lane.rows_acked,
                rejected=lane.rows_rejected,
                lag_p50_ms=milliseconds(self._lags.quantile(0.5, self.numbers[stream])),
                lag_p99_ms=milliseconds(self._lags.quantile(0.99, self.numbers[stream])),
                lag_max_ms=milliseconds(self._lags.worst(self.numbers[stream])),
                waiting=waiting,
                feed=self.name,
                file=self.source.name,
                row=place.row,
                passes=place.passes,
                over=self.over,
            )
            for stream, lane in self.lanes.items()
        }
