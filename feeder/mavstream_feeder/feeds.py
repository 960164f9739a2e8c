"""What a feeder knows of each stream, and how it was asked to send."""

from __future__ import annotations

from dataclasses import dataclass

from mavstream_feeder.lags import Lags
from mavstream_feeder.lane import Lane
from mavstream_feeder.rates import Rate
from mavstream_feeder.reports import StreamReport, milliseconds
from mavstream_feeder.sources import FileSource
from mavstream_protocol.wire.feed import Format

LINGER = 0.001
"""Tuples that fall due within this many seconds of each other may travel together."""
FRAME_ROWS = 4096
# Frames of a stream that may be under way. Few are enough while acks take a millisecond or two; more would
# only pile up small frames in front of a server that is behind.
_FRAMES = 8
_FULL_FRAMES = 64


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


class Feed:
    """A stream with its rows and its lane."""

    def __init__(self, stream: str, source: FileSource, rate: Rate) -> None:
        self.source = source
        self.rate = rate
        self.lane = Lane(stream, _FULL_FRAMES if rate.flat_out else _FRAMES)
        self.lags = Lags()
        self.scheduled = False

    def report(self, *, waiting: bool) -> StreamReport:
        """Return what was done so far."""
        return StreamReport(
            sent=self.lane.rows_sent,
            acked=self.lane.rows_acked,
            lag_p50_ms=milliseconds(self.lags.quantile(0.5)),
            lag_p99_ms=milliseconds(self.lags.quantile(0.99)),
            waiting=waiting,
        )
