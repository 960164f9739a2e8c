"""The Python SDK of MavStream and the `mavstream` command."""

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
from mavstream._plans.builder import Flow, Split, Table, Windowed, join, query, stream, table
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
