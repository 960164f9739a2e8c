"""Errors of the feeder.

FeederError
    InvalidRate         a rate that cannot be parsed
    InvalidSplit        a split condition that cannot be parsed, or does not fit its streams
    UnreadableFile      a file that does not exist, or whose rows do not fit the stream
    RowsRefused         the server refused rows permanently
    FeedLost            the server ended the feed, or lost acknowledged rows
        NoServer        the server cannot be reached any more
"""

from __future__ import annotations

from mavstream import TransportError
from mavstream_protocol import MavstreamError, Problem


class FeederError(MavstreamError):
    """Base class of the feeder's errors."""

    code = "feeder"


class InvalidRate(FeederError):
    """A rate that cannot be parsed."""

    code = "invalid_rate"


class InvalidSplit(FeederError):
    """A split condition that cannot be parsed, or does not fit its streams."""

    code = "invalid_split"


class UnreadableFile(FeederError):
    """A file that does not exist, cannot be read, or does not fit its stream."""

    code = "unreadable_file"


class RowsRefused(FeederError):
    """The server refused a frame; `problem` says why."""

    code = "rows_refused"

    def __init__(self, stream: str, problem: Problem) -> None:
        super().__init__(f"stream '{stream}': the server refused rows: {problem.detail}")
        self.stream = stream
        self.problem = problem


class FeedLost(FeederError):
    """The feed cannot go on: not authorised, another feeder of this name, or acknowledged rows were lost."""

    code = "feed_lost"


class NoServer(FeedLost, TransportError):
    """The server could not be reached within the timeout for outages."""

    code = "no_server"
