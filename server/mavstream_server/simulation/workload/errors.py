"""Errors of workloads.

MavstreamError
    InvalidObject
        InvalidWorkload     a file that is not a workload, or does not make sense as one
    UnknownWorkload         neither a file nor the name of a built-in workload
"""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ValidationError

from mavstream_protocol.errors import InvalidObject, MavstreamError, ProblemItem
from mavstream_server.simulation.workload.draws import FORMS

_LONGEST = 60  # characters of an invalid value that are shown


class InvalidWorkload(InvalidObject):
    """A workload that cannot be run; `items` says where and why."""

    code = "invalid_workload"
    title = "The workload is not valid"

    @classmethod
    def at(cls, file: str, path: str, detail: str) -> InvalidWorkload:
        """Return an error at one path of a file."""
        return cls([ProblemItem(pointer=_pointer(file, path), code="invalid_workload", detail=detail)])

    @classmethod
    def of(cls, file: str, error: ValidationError) -> InvalidWorkload:
        """Return the errors that the validation of a model found."""
        return cls(
            [
                ProblemItem(
                    pointer=_pointer(file, "/".join(_path(item["loc"]))),
                    code=item["type"],
                    detail=f"{_expected(item['msg'])} (got {_shown(item['input'])})",
                )
                for item in error.errors()
            ]
        )


class UnknownWorkload(MavstreamError):
    """A workload that does not exist."""

    code = "unknown_workload"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(
            f"unknown workload {name!r}: it is neither a file nor one of {', '.join(sorted(known))}"
        )


def _pointer(file: str, path: str) -> str:
    return f"{file}: {path}" if path else file


def _path(parts: tuple[int | str, ...]) -> list[str]:
    return [str(part) for part in parts if part not in FORMS]


def _expected(message: str) -> str:
    return message.removeprefix("Value error, ")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
