"""What stops a data job.

DataError
    NoSpark             Java or PySpark is missing or too old
    UnreadableInput     raw files that are not there or say nothing
    UnsupportedPlan     a plan that cannot be answered here
    InvalidJob          options that do not fit together
"""

from __future__ import annotations

from mavstream_protocol import MavstreamError


class DataError(MavstreamError):
    """Base of what stops a data job."""

    code = "data"


class NoSpark(DataError):
    """Spark cannot start on this machine."""

    code = "no_spark"


class UnreadableInput(DataError):
    """Raw files that cannot be converted."""

    code = "unreadable_input"


class UnsupportedPlan(DataError):
    """A plan or an expression that Spark cannot answer as the service would."""

    code = "unsupported_plan"


class InvalidJob(DataError):
    """Options that do not fit together."""

    code = "invalid_job"
