"""Errors of the service, each with an HTTP status, a code and a detail message.

ServiceError
    Refused             400  the request or setting is invalid
    Forbidden           403  the token does not allow it, or the object belongs to another
    NotFound            404  the stream, table, query or class does not exist
    Conflict            409  the request contradicts the current state
        SequenceGap     409  a producer skipped frames
        NotAdmitted     409  a new query would miss its targets, or make others miss theirs
    WrongVersion        412  the object changed since the client read it
    TooLarge            413  a size limit was exceeded
    TooMany             429  a count limit was exceeded
        OverQuota       429  a stream has reached its quota; its producers have to wait
    NotReady            503  temporarily unavailable: starting or stopping
        StorageFailed   503  files cannot be read or written
    StorageFull         507  the disk is full, or the allowed space is used up

A detail names the object, what was expected, what the server got, and what to do.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from http import HTTPStatus

from mavstream_protocol.errors import InvalidObject, MavstreamError, Problem, ProblemItem

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class ServiceError(MavstreamError):
    """Base class of errors that the service reports to clients."""

    status = 500
    code = "service_error"
    title = "The service cannot do this"

    def __init__(self, detail: str, *, code: str | None = None, errors: Sequence[ProblemItem] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code or type(self).code
        self.errors = tuple(errors)

    def problem(self) -> Problem:
        """Return the problem details to send to the client."""
        return Problem(
            title=self.title, status=self.status, code=self.code, detail=self.detail, errors=self.errors
        )


class Refused(ServiceError):
    """Raised for an invalid request or setting."""

    status = 400
    code = "refused"
    title = "This is refused"


class Forbidden(ServiceError):
    """Raised if the token does not allow the request, or the object belongs to somebody else."""

    status = 403
    code = "forbidden"
    title = "The token does not allow this"


class NotFound(ServiceError):
    """Raised if no object of the given name exists."""

    status = 404
    code = "not_found"
    title = "There is no such object"

    @classmethod
    def stream(cls, name: str, known: Iterable[str] = ()) -> NotFound:
        """Return the error for a stream that does not exist."""
        return cls(
            f"there is no stream '{name}': create it with 'mavstream stream create'{_meant(name, known)}",
            code="unknown_stream",
        )

    @classmethod
    def query(cls, ref: str, known: Iterable[str] = ()) -> NotFound:
        """Return the error for a query that does not exist, by its id or name."""
        listed = "'mavstream query list' lists those that there are"
        return cls(f"there is no query '{ref}': {listed}{_meant(ref, known)}", code="unknown_query")

    @classmethod
    def producer(cls, name: str, known: Iterable[str] = ()) -> NotFound:
        """Return the error for a producer that does not exist."""
        return cls(
            f"there is no producer '{name}': 'mavstream producer list' lists all{_meant(name, known)}",
            code="unknown_producer",
        )

    @classmethod
    def table(cls, name: str, known: Iterable[str] = ()) -> NotFound:
        """Return the error for a table that does not exist."""
        how = f"make it with 'mavstream table put {name} FILE'"
        return cls(
            f"there is no table '{name}': {how}{_meant(name, known)}",
            code="unknown_table",
        )

    @classmethod
    def class_(cls, name: str, known: Iterable[str] = ()) -> NotFound:
        """Return the error for a class that does not exist."""
        how = f"create it with 'mavstream class set {name} PRIORITY'"
        return cls(
            f"there is no class '{name}': {how}{_meant(name, known)}",
            code="unknown_class",
        )


class Conflict(ServiceError):
    """Raised for a request that contradicts the current state."""

    status = 409
    code = "conflict"
    title = "The request conflicts with the current state"


class SequenceGap(Conflict):
    """Raised if a producer skipped frames; `expected` is the next expected sequence number."""

    code = "sequence_gap"
    title = "Frames are missing"

    def __init__(self, producer: str, stream: str, expected: int, got: int) -> None:
        super().__init__(
            f"producer '{producer}' sent frame {got} of stream '{stream}', expected is frame {expected}: "
            f"send again from {expected}"
        )
        self.expected = expected
        self.got = got


class NotAdmitted(Conflict):
    """Raised if a new query would miss its targets, or make others miss theirs.

    Not 503, which invites clients to retry automatically: a retry would not succeed.
    """

    code = "not_admitted"
    title = "The query is not admitted"


class WrongVersion(ServiceError):
    """Raised if the object changed since the client read it."""

    status = 412
    code = "wrong_version"
    title = "The object has changed"

    def __init__(self, what: str, expected: int, current: int) -> None:
        super().__init__(
            f"{what} is at version {current}, and the change was meant for version {expected}: "
            "read it again and decide anew"
        )
        self.expected = expected
        self.current = current


class TooLarge(ServiceError):
    """Raised if a size limit is exceeded."""

    status = 413
    code = "too_large"
    title = "This is too large"


class TooMany(ServiceError):
    """Raised if a count limit is exceeded."""

    status = 429
    code = "too_many"
    title = "A limit is reached"


class OverQuota(TooMany):
    """Raised if a stream has reached its quota; `held_by` is the query, if any, that needs old rows."""

    code = "over_quota"
    title = "The stream has reached its quota"

    def __init__(self, detail: str, *, held_by: str | None = None) -> None:
        super().__init__(detail)
        self.held_by = held_by


class NotReady(ServiceError):
    """Raised if the service is temporarily unavailable."""

    status = 503
    code = "not_ready"
    title = "Not available now"


class StorageFailed(NotReady):
    """Raised if files cannot be read or written."""

    code = "storage_failed"
    title = "The storage failed"


class StorageFull(ServiceError):
    """Raised if the disk is full or the allowed space is used up."""

    status = 507
    code = "storage_full"
    title = "There is no space"


def listed(names: Sequence[str]) -> str:
    """Return the names of objects for an error message: the first five, and the number of the others."""
    shown = ", ".join(f"'{name}'" for name in names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown


def is_full(error: Exception) -> bool:
    """Return whether a file system error means that there is no space."""
    return isinstance(error, OSError) and error.errno in _FULL


def storage_problem(what: str, error: Exception) -> ServiceError:
    """Return the error to raise for a file system error: StorageFull or StorageFailed."""
    if is_full(error):
        return StorageFull(
            f"{what} could not be written, the disk is full ({error}): free space and send again; "
            "what was acknowledged before is safe"
        )
    return StorageFailed(f"{what} could not be written ({error}): see the server's log, then send it again")


def _meant(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1)
    return f", or did you mean '{close[0]}'" if close else ""


def problem_of(error: MavstreamError) -> Problem:
    """Return the problem details of an error that was raised deliberately."""
    status = getattr(error, "status", None)
    if isinstance(error, InvalidObject):
        return error.problem(422 if status is None else status)
    if isinstance(error, ServiceError):
        return error.problem()
    detail = getattr(error, "detail", None) or str(error)
    code = status or 422
    title = getattr(error, "title", None) or HTTPStatus(code).phrase
    items = tuple(getattr(error, "errors", ()) or ())
    return Problem(title=title, status=code, code=error.code, detail=detail, errors=items)
