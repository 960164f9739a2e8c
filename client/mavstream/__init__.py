"""The Python SDK of MavStream and the `mavstream` command."""

import typing

from mavstream_protocol.lazy import lazy_names as _lazy_names

if typing.TYPE_CHECKING:
    from mavstream._async_client import AsyncClient
    from mavstream._async_query import AsyncQuery
    from mavstream._client import Client
    from mavstream._errors import (
        CannotStart,
        Conflict,
        ConnectFailed,
        ConnectionLost,
        Forbidden,
        GapFound,
        GapWarning,
        Invalid,
        NotAuthorised,
        NotFound,
        ProblemError,
        QueryFailed,
        Rejected,
        ServerProblem,
        SqlError,
        Timeout,
        TooMany,
        TransportError,
    )
    from mavstream._feeding.async_feed import AsyncFeed
    from mavstream._feeding.feed import Feed
    from mavstream._plans.builder import Flow, Grouped, Split, Table, Windowed, join, query, stream, table
    from mavstream._query import Query
    from mavstream._results.async_results import AsyncResults
    from mavstream._results.results import Results
    from mavstream._results.row_page import RowPage
    from mavstream._sql.results import SqlResults
    from mavstream._transport.retry import Retry
    from mavstream_protocol import InvalidObject, InvalidPlan, InvalidTuples, MavstreamError, Plan, Problem

__all__ = [
    "AsyncClient",
    "AsyncFeed",
    "AsyncQuery",
    "AsyncResults",
    "CannotStart",
    "Client",
    "Conflict",
    "ConnectFailed",
    "ConnectionLost",
    "Feed",
    "Flow",
    "Forbidden",
    "GapFound",
    "GapWarning",
    "Grouped",
    "Invalid",
    "InvalidObject",
    "InvalidPlan",
    "InvalidTuples",
    "MavstreamError",
    "NotAuthorised",
    "NotFound",
    "Plan",
    "Problem",
    "ProblemError",
    "Query",
    "QueryFailed",
    "Rejected",
    "Results",
    "Retry",
    "RowPage",
    "ServerProblem",
    "Split",
    "SqlError",
    "SqlResults",
    "Table",
    "Timeout",
    "TooMany",
    "TransportError",
    "Windowed",
    "join",
    "query",
    "stream",
    "table",
]

_MODULES = {
    "mavstream._async_client": ("AsyncClient",),
    "mavstream._async_query": ("AsyncQuery",),
    "mavstream._client": ("Client",),
    "mavstream._errors": (
        "CannotStart",
        "Conflict",
        "ConnectFailed",
        "ConnectionLost",
        "Forbidden",
        "GapFound",
        "GapWarning",
        "Invalid",
        "NotAuthorised",
        "NotFound",
        "ProblemError",
        "QueryFailed",
        "Rejected",
        "ServerProblem",
        "SqlError",
        "Timeout",
        "TooMany",
        "TransportError",
    ),
    "mavstream._feeding.async_feed": ("AsyncFeed",),
    "mavstream._feeding.feed": ("Feed",),
    "mavstream._plans.builder": (
        "Flow",
        "Grouped",
        "Split",
        "Table",
        "Windowed",
        "join",
        "query",
        "stream",
        "table",
    ),
    "mavstream._query": ("Query",),
    "mavstream._results.async_results": ("AsyncResults",),
    "mavstream._results.results": ("Results",),
    "mavstream._results.row_page": ("RowPage",),
    "mavstream._sql.results": ("SqlResults",),
    "mavstream._transport.retry": ("Retry",),
    "mavstream_protocol": (
        "InvalidObject",
        "InvalidPlan",
        "InvalidTuples",
        "MavstreamError",
        "Plan",
        "Problem",
    ),
}
__getattr__, __dir__ = _lazy_names(globals(), _MODULES)
