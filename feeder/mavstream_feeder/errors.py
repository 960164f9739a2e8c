"""What stops a feeder.

FeederError
    InvalidRate         a rate that cannot be read
    InvalidSplit        a split condition that cannot be read, or streams that do not fit it
    UnreadableFile      a file that is not there, or whose rows do not fit the stream
    RowsRefused         the server refused rows, and would refuse them again
    FeedLost            the server ended the feed, or forgot what it acked
        NoServer        ... the connection is gone and stays gone
"""

from __future__ import annotations

from mavstream import TransportError
from mavstream_protocol import MavstreamError, Problem


class FeederError(MavstreamError):
    """Base of what stops a feeder."""

    code = "feeder"


class InvalidRate(FeederError):
    """A rate that cannot be read."""

    code = "invalid_rate"


class InvalidSplit(FeederError):
    """A split condition that cannot be read, or whose streams do not fit its file."""

    code = "invalid_split"


class UnreadableFile(FeederError):
    """A file that is not there, cannot be read, or does not fit its stream."""

    code = "unreadable_file"


class RowsRefused(FeederError):
    """The server refused a frame; `problem` says why."""

    code = "rows_refused"

    def __init__(self, stream: str, problem: Problem) -> None:
        super().__init__(f"stream '{stream}': the server refused rows: {problem.detail}")
        self.stream = stream
        self.problem = problem


class FeedLost(FeederError):
    """The feed cannot go on: no right to it, another feeder of this name, acked rows that are gone."""

    code = "feed_lost"


class NoServer(FeedLost, TransportError):
    """No server answered for as long as patience lasted."""

    code = "no_server"
