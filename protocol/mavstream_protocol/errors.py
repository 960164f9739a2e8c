"""Exceptions and problem details, with stable codes for programs and messages for people.

MavstreamError
    ExpressionError     an expression is invalid; without its location in the plan
    InvalidObject       an object sent by a client has one or more errors
        InvalidPlan     ... a plan
        InvalidTuples   ... a frame of tuples
        InvalidSql      ... an SQL statement, with line and column
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict


class ProblemItem(BaseModel):
    """A single error and its location."""

    model_config = ConfigDict(frozen=True)

    pointer: str
    """Path to the invalid value, such as `nodes/hot/where`."""
    code: str
    """Stable, for programs: `unknown_field`, `type_mismatch`, ..."""
    detail: str
    """Message for people: the object, what was expected, what it got, and what to do."""
    line: int | None = None
    """In SQL: the line of the error, from 1."""
    column: int | None = None
    """In SQL: the column of the error, from 1."""


class Problem(BaseModel):
    """Problem details as sent in `application/problem+json` (RFC 9457)."""

    model_config = ConfigDict(frozen=True)

    type: str = "about:blank"
    title: str
    status: int
    code: str
    detail: str
    errors: tuple[ProblemItem, ...] = ()


class MavstreamError(Exception):
    """Base of all errors that this service raises on purpose."""

    code = "error"


class ExpressionError(MavstreamError):
    """An expression that cannot be parsed or typed."""

    def __init__(self, code: str, detail: str, at: int | None = None) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.at = at
        """Where in the text the error is, if known: the number of characters before it."""


class InvalidObject(MavstreamError):
    """A client sent an invalid object; `items` lists each error with its location."""

    code = "invalid_object"
    title = "The request is not valid"

    def __init__(self, items: Sequence[ProblemItem]) -> None:
        self.items = tuple(items)
        super().__init__("; ".join(f"{item.pointer}: {item.detail}" for item in self.items))

    def __reduce__(self) -> tuple[type[InvalidObject], tuple[object, ...]]:
        return type(self), (self.items,)  # it may come from another process

    def problem(self, status: int = 422) -> Problem:
        """Return the problem details that are sent to the client."""
        return Problem(title=self.title, status=status, code=self.code, detail=str(self), errors=self.items)


class InvalidPlan(InvalidObject):
    """A plan that cannot be run."""

    code = "invalid_plan"
    title = "The plan is not valid"


class InvalidSql(InvalidObject):
    """An SQL statement that cannot be read or planned; lines and columns count from 1."""

    code = "invalid_sql"
    title = "The SQL statement is not valid"

    def __init__(self, reason: str, detail: str, line: int, column: int, found: str) -> None:
        pointer = f"sql:{line}:{column}"
        super().__init__([ProblemItem(pointer=pointer, code=reason, detail=detail, line=line, column=column)])
        self.reason = reason
        """Stable, for programs: `syntax_error`, `unknown_field`, ..."""
        self.detail = detail
        self.line = line
        self.column = column
        self.found = found
        """The text that the error is about."""

    def __reduce__(self) -> tuple[type[InvalidSql], tuple[object, ...]]:
        return type(self), (self.reason, self.detail, self.line, self.column, self.found)


class InvalidTuples(InvalidObject):
    """A frame of tuples that does not fit its stream's schema."""

    code = "invalid_tuples"
    title = "The tuples do not fit the stream"
