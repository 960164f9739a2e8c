"""Errors as people read them, and the exit codes of the command."""

from __future__ import annotations

from mavstream._errors import ProblemError, SqlError, TransportError
from mavstream.cli.output import complain
from mavstream_protocol.errors import InvalidObject, MavstreamError

_WRONG_COMMAND_LINE = ("unreadable_file", "invalid_url")


def report(error: MavstreamError) -> int:
    """Print an error to stderr and return the exit code."""
    match error:
        case TransportError():
            complain(str(error))
            return 3
        case SqlError():
            complain(str(error))
        case ProblemError():
            items = error.problem.errors
            complain(f"{error.problem.title} ({error.code})" if items else str(error), items)
        case InvalidObject():
            if error.items[0].code in _WRONG_COMMAND_LINE:
                complain(error.items[0].detail)
                return 2
            complain(error.title, error.items)
        case _:
            complain(str(error))
    return 1
