"""What goes wrong for a client, by what the caller would do about it.

MavstreamError
    TransportError          the server was not heard: try again later
        ConnectFailed       ... there was no connection, so nothing was done
        ConnectionLost      ... the connection broke, so something may have been done
        Timeout             ... it took too long
    ProblemError            the server said no; `problem` says why
        Invalid             ... what was sent is wrong (400, 413, 415, 422, ...)
        NotAuthorised       ... who are you (401)
        Forbidden           ... not you (403)
        NotFound            ... there is no such thing (404)
        Conflict            ... not in this state, or not this version (409, 412)
        TooMany             ... a limit is reached (429)
        ServerProblem       ... it is the server's fault (5xx)
    Rejected                a frame of a feed was not taken; `problem` says why
    GapFound                rows of a query's answers are no longer there; `gap` says which
    QueryFailed             a query has ended because it failed
    CannotStart             a server for tests did not come up
    InvalidObject           an object is wrong; found before it was sent
"""

from __future__ import annotations

from http import HTTPStatus

from pydantic import ValidationError

from mavstream_protocol import MavstreamError, Problem
from mavstream_protocol.wire.feed import CloseCode
from mavstream_protocol.wire.results import Gap


class TransportError(MavstreamError):
    """The server was not reached, or its answer did not come."""

    code = "transport"


class ConnectFailed(TransportError):
    """There was no connection, so the server knows nothing of the request."""

    code = "connect_failed"


class ConnectionLost(TransportError):
    """The connection broke; `close_code` is the server's reason, if it gave one."""

    code = "connection_lost"

    def __init__(self, detail: str, close_code: int | None = None) -> None:
        super().__init__(detail)
        self.close_code = close_code


class Timeout(TransportError):
    """Nothing came in time."""

    code = "timeout"


class ProblemError(MavstreamError):
    """The server refused; `problem` carries its reason, with pointers to what is wrong."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem
        self.code = problem.code


class Invalid(ProblemError):
    """What was sent is wrong."""


class NotAuthorised(ProblemError):
    """The server does not know the token, or needs one."""


class Forbidden(ProblemError):
    """The role of the token does not allow this."""


class NotFound(ProblemError):
    """There is no such thing."""


class Conflict(ProblemError):
    """The thing is not in a state, or not in the version, for this."""


class TooMany(ProblemError):
    """A limit of the server is reached."""


class ServerProblem(ProblemError):
    """The server cannot do it now."""


class Rejected(ProblemError):
    """A frame of a feed was not taken; the frames before and behind it stand."""

    def __init__(self, stream: str, rows: int, problem: Problem) -> None:
        super().__init__(problem)
        self.stream = stream
        self.rows = rows


class GapFound(MavstreamError):
    """Rows of a query's answers will not come; reading on continues behind the gap."""

    code = "gap"

    def __init__(self, gap: Gap) -> None:
        super().__init__(gap.detail)
        self.gap = gap


class GapWarning(UserWarning):
    """Rows of a query's answers will not come."""


class QueryFailed(MavstreamError):
    """A query has ended because it failed; all rows that it gave before were read."""

    code = "query_failed"

    def __init__(self, query: str, detail: str) -> None:
        super().__init__(f"query '{query}' failed: {detail}" if detail else f"query '{query}' failed")
        self.query = query


class CannotStart(MavstreamError):
    """A server for tests did not come up."""

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
    """Return the error of the family that the status belongs to."""
    family = _FAMILIES.get(problem.status, ServerProblem if problem.status >= 500 else Invalid)
    return family(problem)


def answer_error(status: int, content: bytes) -> ProblemError:
    """Return the error for an answer that is not a success, whoever gave it."""
    try:
        return problem_error(Problem.model_validate_json(content))
    except ValidationError:
        pass
    # Not our server's words: a proxy in between, or a server that is not MavStream.
    title = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Unknown status"
    text = content[:200].decode(errors="replace").strip()
    detail = f"the server answered {status} {title}" + (f": {text}" if text else "")
    return problem_error(Problem(title=title, status=status, code=f"http_{status}", detail=detail))


def refusal_of(lost: ConnectionLost) -> ProblemError | None:
    """Return the error for a close code that says no, None for one after which to connect again."""
    status = _CLOSED.get(lost.close_code or 0)
    if status is None:
        return None
    name = CloseCode(lost.close_code or 0).name.lower()
    return problem_error(
        Problem(title="The connection was refused", status=status, code=name, detail=str(lost))
    )
