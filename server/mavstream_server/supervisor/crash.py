"""Crashes: how an engine process died, and which queries it worked for then."""

from __future__ import annotations

import signal
from typing import NamedTuple

from mavstream_server.engine.crash_record import Noted, Reading

_TOO_LONG = 100_000_000
"""Time (ns) after which work on one query counts as the reason of a death by SIGKILL.

The system's memory killer and an administrator use the same signal. An operator stops after some
milliseconds, unless it allocates much memory or hangs.
"""


class Crash(NamedTuple):
    """The death of an engine process."""

    how: str
    """How it died: `was killed by SIGSEGV`."""
    queries: tuple[str, ...] = ()
    """The queries that caused it; empty if none did, as when an administrator killed it."""
    readings: tuple[Reading, ...] = ()
    """The rows that these queries were at."""


def crash_of(noted: Noted | None, code: int, now: int, *, hung: bool) -> Crash:
    """Return the crash of a process with this exit code and crash record, that died `now` (monotonic, ns)."""
    how = "hung and was killed" if hung else _how(code)
    if noted is None:
        return Crash(how)
    from_outside = code in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT) and not hung
    if from_outside and now - noted.since < _TOO_LONG:
        return Crash(how)
    return Crash(how, noted.queries, noted.readings)


def _how(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
