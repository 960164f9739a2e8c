"""The Poisson feeder: files into streams, at the rates and with the randomness of live sources."""

from mavstream_feeder.feeder import Feeder
from mavstream_feeder.feeds import Options
from mavstream_feeder.inference import infer_stream
from mavstream_feeder.link import Address, Patience
from mavstream_feeder.problems import FeederError, FeedLost, InvalidRate, RowsRefused, UnreadableFile
from mavstream_feeder.rates import Rate, parse_rate, parse_rates
from mavstream_feeder.reports import Report, StreamReport
from mavstream_feeder.schedule import Due, Schedule
from mavstream_feeder.sources import FileSource

__all__ = [
    "Address",
    "Due",
    "FeedLost",
    "Feeder",
    "FeederError",
    "FileSource",
    "InvalidRate",
    "Options",
    "Patience",
    "Rate",
    "Report",
    "RowsRefused",
    "Schedule",
    "StreamReport",
    "UnreadableFile",
    "infer_stream",
    "parse_rate",
    "parse_rates",
]
