"""Errors of the service in the words of SQL: what to do is a statement instead of a request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from mavstream_protocol.errors import InvalidObject, MavstreamError
from mavstream_protocol.names import closest
from mavstream_server.core.errors import Conflict, NotFound
from mavstream_server.core.namespace import Named

_ADVICE = {
    "unknown_stream": "SHOW STREAMS lists those that there are",
    "unknown_table": "SHOW TABLES lists those that there are",
    "unknown_query": "SHOW QUERIES lists those that there are",
    "unknown_class": "create it with CREATE CLASS, or see SHOW CLASSES",
}
_NAME = re.compile(r"'([^']+)'")
_PUT = re.compile(r"replace it with PUT /v1/queries/\w+")


def in_words_of_sql(
    error: MavstreamError, holder: Callable[[str], Named | None], classes: Iterable[str]
) -> MavstreamError:
    """Return an error with advice in SQL, where that of the service is a request; otherwise the same.

    `holder` returns the object that has a name; `classes` are the names of the classes.
    """
    if isinstance(error, NotFound) and error.code in _ADVICE:
        return _not_found(error, holder)
    if isinstance(error, Conflict) and error.code == "query_exists":
        detail = _PUT.sub("change it with CREATE OR REPLACE QUERY", error.detail)
        return Conflict(detail, code=error.code)
    if isinstance(error, InvalidObject) and any(item.code == "unknown_class" for item in error.items):
        items = [
            item.model_copy(update={"detail": _unknown_class(item.detail, classes)})
            if item.code == "unknown_class"
            else item
            for item in error.items
        ]
        return type(error)(items)
    return error


def _not_found(error: NotFound, holder: Callable[[str], Named | None]) -> NotFound:
    what, _, meant = error.detail.partition(": ")
    _, or_else, suggestion = meant.partition(", or did you mean ")
    advice = _ADVICE[error.code]
    name = _NAME.search(what)
    other = None if name is None or error.code == "unknown_class" else holder(name[1])
    if other is not None and error.code != f"unknown_{other.kind}":
        advice = f"a {other.kind} has this name; {advice}"
    return NotFound(f"{what}: {advice}{or_else}{suggestion}", code=error.code)


def _unknown_class(detail: str, classes: Iterable[str]) -> str:
    what, _, _ = detail.partition(": ")
    name = _NAME.search(what)
    close = [] if name is None else closest(name[1], classes, 1)
    meant = f"did you mean '{close[0]}'? Otherwise " if close else ""
    return f"{what}: {meant}create it with CREATE CLASS, or leave the class out"
