"""Problems: what goes wrong, in a form that a program can branch on and a person can act on.

MavstreamError
    ExpressionError     one expression cannot be understood; knows nothing of where it stands
    InvalidObject       an object given by a client is wrong in one or more places
        InvalidPlan     ... a plan
        InvalidTuples   ... a frame of tuples
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict


class ProblemItem(BaseModel):
    """One thing that is wrong, and where."""

    model_config = ConfigDict(frozen=True)

    pointer: str
    """Path to the offending part, such as `nodes/hot/where`."""
    code: str
    """Stable, for programs: `unknown_field`, `type_mismatch`, ..."""
    detail: str
    """For people: which object, what was expected, what came, what to do."""


class Problem(BaseModel):
    """Problem details as `application/problem+json` carries them (RFC 9457)."""

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

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class InvalidObject(MavstreamError):
    """An object given by a client is wrong; `items` says where and why."""

    code = "invalid_object"
    title = "The object is not valid"

    def __init__(self, items: Sequence[ProblemItem]) -> None:
        self.items = tuple(items)
        super().__init__("; ".join(f"{item.pointer}: {item.detail}" for item in self.items))

    def problem(self, status: int = 422) -> Problem:
        """Return the problem details to send to the client."""
        return Problem(title=self.title, status=status, code=self.code, detail=str(self), errors=self.items)


class InvalidPlan(InvalidObject):
    """A plan that cannot be run."""

    code = "invalid_plan"
    title = "The plan is not valid"


class InvalidTuples(InvalidObject):
    """A frame of tuples that does not fit its stream's schema."""

    code = "invalid_tuples"
    title = "The tuples do not fit the stream"
