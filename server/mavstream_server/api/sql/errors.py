"""Errors of the service in the words of SQL: what to do is a statement instead of a request."""

from __future__ import annotations

from mavstream_protocol.errors import MavstreamError
from mavstream_server.core.errors import NotFound

_ADVICE = {
    "unknown_stream": "SHOW STREAMS lists those that there are",
    "unknown_table": "SHOW TABLES lists those that there are",
    "unknown_query": "SHOW QUERIES lists those that there are",
    "unknown_class": "create it with CREATE CLASS, or see SHOW CLASSES",
}


def in_words_of_sql(error: MavstreamError) -> MavstreamError:
    """Return an error with advice in SQL, if it is of an object that does not exist; otherwise the same."""
    advice = _ADVICE.get(error.code)
    if advice is None or not isinstance(error, NotFound):
        return error
    what, _, meant = error.detail.partition(": ")
    _, or_else, suggestion = meant.partition(", or did you mean ")
    return NotFound(f"{what}: {advice}{or_else}{suggestion}", code=error.code)
