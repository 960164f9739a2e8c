"""Crashes: how an engine process died, and which queries it worked for then."""

from __future__ import annotations

import signal
from typing import NamedTuple

from mavstream_server.engine.crash_record import Noted, Reading

_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT)


class Crash(NamedTuple):
    """The death of an engine process."""

    how: str
    """How it died: `was killed by SIGSEGV`."""
    queries: tuple[str, ...] = ()
    """The queries that caused it; empty if none did, as when an administrator killed it."""
    readings: tuple[Reading, ...] = ()
    """The rows that these queries were at."""


def crash_of(noted: Noted | None, code: int, *, hung: bool, out_of_memory: bool) -> Crash:
    """Return the crash of a process with this exit code and crash record.

    A process is killed from outside by an administrator or, `out_of_memory`, by the system: only then is the
    query that ran the reason.
    """
    how = "hung and was killed" if hung else _how(code)
    from_outside = code in _FROM_OUTSIDE and not hung and not out_of_memory
    if noted is None or from_outside:
        return Crash(how)
    return Crash(how, noted.queries, noted.readings)


def _how(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
