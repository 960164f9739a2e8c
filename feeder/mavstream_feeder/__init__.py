"""The feeder: rows of files into streams, with Poisson arrivals or as recorded."""

from mavstream_feeder.errors import (
    FeederError,
    FeedLost,
    InvalidRate,
    InvalidSplit,
    RowsRefused,
    UnreadableFile,
)
from mavstream_feeder.input.inference import infer_stream
from mavstream_feeder.input.sources import FileSource
from mavstream_feeder.input.splitting import Branch, Splitter
from mavstream_feeder.pacing.rates import Rate, Recorded, parse_rate, parse_rates
from mavstream_feeder.pacing.schedule import Due, Schedule
from mavstream_feeder.reports import Report, Stopped, StreamReport
from mavstream_feeder.sending.feeder import Feeder
from mavstream_feeder.sending.feeds import Options
from mavstream_feeder.sending.link import Address, Patience

__all__ = [
    "Address",
    "Branch",
    "Due",
    "FeedLost",
    "Feeder",
    "FeederError",
    "FileSource",
    "InvalidRate",
    "InvalidSplit",
    "Options",
    "Patience",
    "Rate",
    "Recorded",
    "Report",
    "RowsRefused",
    "Schedule",
    "Splitter",
    "Stopped",
    "StreamReport",
    "UnreadableFile",
    "infer_stream",
    "parse_rate",
    "parse_rates",
]
