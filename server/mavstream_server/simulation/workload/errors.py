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
from mavstream_protocol.model_errors import causes, sentence
from mavstream_server.simulation.workload.draws import FORMS


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
        items = []
        for item in causes(error.errors()):
            path = _path(item["loc"])
            detail = sentence(item, f"'{path[-1]}'" if path else "the file")
            items.append(
                ProblemItem(pointer=_pointer(file, "/".join(path)), code=item["type"], detail=detail)
            )
        return cls(items)


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
