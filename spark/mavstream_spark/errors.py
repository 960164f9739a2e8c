"""Errors of data jobs.

DataError
    NoSpark             Java or PySpark is missing or too old
    UnreadableInput     files that are missing or have no usable content
    UnsupportedPlan     a plan that Spark cannot answer as the service would
    InvalidJob          options that are wrong or do not fit together
"""

from __future__ import annotations

from mavstream_protocol import MavstreamError


class DataError(MavstreamError):
    """Base class of the errors of data jobs."""

    code = "data"


class NoSpark(DataError):
    """Spark cannot start on this machine."""

    code = "no_spark"


class UnreadableInput(DataError):
    """Files that cannot be read or converted."""

    code = "unreadable_input"


class UnsupportedPlan(DataError):
    """A plan or an expression that Spark cannot answer as the service would."""

    code = "unsupported_plan"


class InvalidJob(DataError):
    """Options that are wrong or do not fit together."""

    code = "invalid_job"
