"""The files of result logs, as far as they are made here and not by the engine that writes them."""

from __future__ import annotations

from pathlib import Path

from mavstream_server.core.errors import storage_problem
from mavstream_server.log.errors import LogError
from mavstream_server.log.format.description import LogDescription, ensure_description, load_description
from mavstream_server.supervisor.caller import EngineRefused


def is_described(log: Path) -> bool:
    """Return whether there is a result log already; the engine looks whether it fits the query."""
    try:
        load_description(log)
    except (LogError, OSError):
        return False
    return True


def describe_log(log: Path, description: LogDescription) -> None:
    """Make sure that a result log has a directory and a description, safe on disk."""
    try:
        log.mkdir(parents=True, exist_ok=True)
        ensure_description(log, description)
    except LogError as error:
        raise EngineRefused(str(error), code=error.code) from error
    except OSError as error:
        raise storage_problem(f"result log {log.name!r}", error) from error
