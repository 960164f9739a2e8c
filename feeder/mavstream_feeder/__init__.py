"""The Poisson feeder: files into streams, at the rates and with the randomness of live sources."""

from mavstream_feeder.feeder import Feeder
from mavstream_feeder.feeds import Options
from mavstream_feeder.inference import infer_stream
from mavstream_feeder.link import Address, Patience
from mavstream_feeder.problems import (
    FeederError,
    FeedLost,
    InvalidRate,
    InvalidSplit,
    RowsRefused,
    UnreadableFile,
)
from mavstream_feeder.rates import Rate, Recorded, parse_rate, parse_rates
from mavstream_feeder.reports import Report, Stopped, StreamReport
from mavstream_feeder.schedule import Due, Schedule
from mavstream_feeder.sources import FileSource
from mavstream_feeder.splitting import Branch, Splitter

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
