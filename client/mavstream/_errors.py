"""Errors of the SDK, grouped by what the caller would do about them.

MavstreamError
    TransportError          no answer from the server: retry later
        ConnectFailed       could not connect, so nothing was done
        ConnectionLost      the connection broke, so something may have been done
        Timeout             no answer in time
    ProblemError            the server refused; `problem` says why
        Invalid             the request is wrong (400, 413, 415, 422, ...)
        NotAuthorised       no token, or an unknown one (401)
        Forbidden           the token's role does not allow it (403)
        NotFound            the object does not exist (404)
        Conflict            not in this state, or not this version (409, 412)
        TooMany             a limit is reached (429)
        ServerProblem       the server cannot do it now (5xx)
        Rejected            rows of a feed were refused
        SqlError            an SQL statement was refused, with its line and column
    GapFound                rows of a query's results are no longer kept; `gap` says which
    QueryFailed             a query has ended because it failed
    CannotStart             a server for tests did not start
    InvalidObject           an object is invalid; found before it was sent
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from pydantic import ValidationError

from mavstream._sql.pointing import pointed
from mavstream._sql.results import SqlResults
from mavstream_protocol import MavstreamError, Problem
from mavstream_protocol.wire.feed import CloseCode
from mavstream_protocol.wire.results import Gap

if TYPE_CHECKING:
    from mavstream_protocol.wire.sql import SqlResult


class TransportError(MavstreamError):
    """The server could not be reached, or did not answer."""

    code = "transport"


class ConnectFailed(TransportError):
    """Could not connect, so the server did not see the request."""

    code = "connect_failed"


class ConnectionLost(TransportError):
    """The connection broke; `close_code` is the server's close code, if it sent one."""

    code = "connection_lost"

    def __init__(self, detail: str, close_code: int | None = None) -> None:
        super().__init__(detail)
        self.close_code = close_code


class Timeout(TransportError):
    """No answer within the timeout."""

    code = "timeout"


class ProblemError(MavstreamError):
    """The server refused; `problem` has the reason, with pointers to what is wrong."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem
        self.code = problem.code


class Invalid(ProblemError):
    """The request is invalid."""


class NotAuthorised(ProblemError):
    """The server needs a token, or does not know this one."""


class Forbidden(ProblemError):
    """The role of the token does not allow this."""


class NotFound(ProblemError):
    """The object does not exist."""


class Conflict(ProblemError):
    """The object is in another state or version than the request needs."""


class TooMany(ProblemError):
    """A limit of the server is reached."""


class ServerProblem(ProblemError):
    """The server cannot do it now."""


class Rejected(ProblemError):
    """Rows of a feed were refused; the rows before and behind them are not affected."""

    def __init__(self, stream: str, rows: int, problem: Problem) -> None:
        super().__init__(problem)
        self.stream = stream
        self.rows = rows


class SqlError(ProblemError):
    """An SQL statement was refused; as text, it shows the line with a caret under the column.

    `problem.status` and `code` say what kind of error it is: 422 for SQL that is wrong, 409 for a conflict,
    403 for a statement that the token does not allow.
    """

    def __init__(
        self,
        problem: Problem,
        sql: str,
        results: Sequence[SqlResult] = (),
        number: int = 1,
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        super().__init__(problem)
        self.sql = sql
        """The text that was run."""
        self.results = SqlResults(results)
        """Of the statements before it, which took effect."""
        self.number = number
        """The number of the statement, from 1."""
        self.line = line
        self.column = column

    @classmethod
    def of(
        cls,
        problem: Problem,
        sql: str,
        done: Sequence[SqlResult] = (),
        before: int = 0,
        start: tuple[int, int] | None = None,
    ) -> SqlError:
        """Return the error for a problem; `done` and `before` are the results and the number before it.

        `start` is the place of the statement, for errors without one.
        """
        failed = getattr(problem, "failed", None)
        places = [(one.line, one.column) for one in (*problem.errors, failed) if one is not None and one.line]
        line, column = [*places, start or (None, None)][0]
        results = (*done, *getattr(problem, "results", ()))
        return cls(problem, sql, results, before + (failed.number if failed else 1), line, column)

    def __str__(self) -> str:
        located = [one.detail for one in self.problem.errors if one.line]
        lines = ["; ".join(located) or self.problem.detail]
        if self.line is not None and self.column is not None:
            lines.append(pointed(self.sql, self.line, self.column))
        if self.number > 1:
            count = self.number - 1
            lines.append(f"the {'statement' if count == 1 else f'{count} statements'} before it took effect")
        return "\n".join(lines)


class GapFound(MavstreamError):
    """Rows of a query's results are missing; reading on continues behind the gap."""

    code = "gap"

    def __init__(self, gap: Gap) -> None:
        super().__init__(gap.detail)
        self.gap = gap


class GapWarning(UserWarning):
    """Rows of a query's results are missing."""


class QueryFailed(MavstreamError):
    """A query has ended because it failed; all its rows were read before."""

    code = "query_failed"

    def __init__(self, query: str, detail: str) -> None:
        super().__init__(f"query '{query}' failed: {detail}" if detail else f"query '{query}' failed")
        self.query = query


class CannotStart(MavstreamError):
    """A server for tests did not start."""

    code = "cannot_start"


_FAMILIES: dict[int, type[ProblemError]] = {
    401: NotAuthorised,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: Conflict,
    429: TooMany,
}
_CLOSED: dict[int, int] = {
    CloseCode.TOO_BIG: 413,
    CloseCode.NOT_UNDERSTOOD: 400,
    CloseCode.NOT_AUTHORISED: 401,
    CloseCode.FORBIDDEN: 403,
    CloseCode.UNKNOWN: 404,
    CloseCode.TAKEN: 409,
    CloseCode.LAGGING: 409,
    CloseCode.TOO_MANY: 429,
}


def problem_error(problem: Problem) -> ProblemError:
    """Return the error class for the status of a problem, with that problem."""
    family = _FAMILIES.get(problem.status, ServerProblem if problem.status >= 500 else Invalid)
    return family(problem)


def answer_error(status: int, content: bytes) -> ProblemError:
    """Return the error for an HTTP answer that is not a success."""
    try:
        return problem_error(_problem_kind(content).model_validate_json(content))
    except ValidationError:
        pass
    # Not from a MavStream server: a proxy, or another server.
    title = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Unknown status"
    text = content[:200].decode(errors="replace").strip()
    detail = f"the server answered {status} {title}" + (f": {text}" if text else "")
    return problem_error(Problem(title=title, status=status, code=f"http_{status}", detail=detail))


def unreadable_answer(reason: str) -> ServerProblem:
    """Return the error for a success whose content is not what it should be."""
    detail = f"the server's answer is not understood ({reason}): is it another version?"
    return ServerProblem(
        Problem(title="Answer not understood", status=502, code="unreadable_answer", detail=detail)
    )


def _problem_kind(content: bytes) -> type[Problem]:
    """Return the model of a problem: that of a script of SQL has the results of its statements."""
    if b'"failed"' not in content:
        return Problem
    from mavstream_protocol.wire.sql import SqlProblem

    return SqlProblem


def refusal_of(lost: ConnectionLost) -> ProblemError | None:
    """Return the error for a close code that is a refusal; None for one after which to reconnect."""
    status = _CLOSED.get(lost.close_code or 0)
    if status is None:
        return None
    name = CloseCode(lost.close_code or 0).name.lower()
    return problem_error(
        Problem(title="The connection was refused", status=status, code=name, detail=str(lost))
    )
