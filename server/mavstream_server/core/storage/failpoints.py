"""Failpoints: named places in the storage code where a test lets a process die or the disk fail.

They are armed by an environment variable, when a process starts, and by nothing else:

    MAVSTREAM_FAILPOINTS="engine:log.write.before=kill@17;log.fsync=enospc@3"

Each entry is `[PROCESS:]POINT=ACTION[@N]`: the N-th time (1 if it is left out) that the process gets to the
point, it acts, once. A process is `api`, `engine`, or `writer`: the one that an engine forks to write
checkpoints, which counts from zero each time. A point without `.before` or `.after` is the one before.
MAVSTREAM_FAILPOINTS_ONCE may name a directory: an entry then acts once for all processes that have this
directory, so that a process that is started in place of a killed one survives. A file per entry that has
acted is left there.

Code that stores something calls `hit("checkpoint.write.before")`. Where that is too expensive it tests
`armed` first, which is None unless the variable is set.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import threading
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

from mavstream_server.core.errors import Refused

VARIABLE: Final = "MAVSTREAM_FAILPOINTS"
ONCE_VARIABLE: Final = "MAVSTREAM_FAILPOINTS_ONCE"
ProcessName: TypeAlias = Literal["api", "engine", "writer"]
PositionedWrite: TypeAlias = Callable[[int, bytes | memoryview, int], int]

_ENTRY = re.compile(
    r"(?:(?P<process>api|engine|writer):)?(?P<point>[a-z_]+(?:\.[a-z_]+)+)=(?P<action>[a-z]+)(?:@(?P<n>[1-9]\d{0,8}))?"
)
_ENDS = (".before", ".after")


class FailAction(StrEnum):
    """What happens at a failpoint."""

    KILL = "kill"
    """The process gets a SIGKILL."""
    ENOSPC = "enospc"
    """The call fails: no space left on device."""
    EIO = "eio"
    """The call fails: input/output error."""
    SHORT = "short"
    """A write takes only half of its bytes and says so; elsewhere nothing happens."""
    TORN = "torn"
    """A write takes only half of its bytes, then the process gets a SIGKILL; elsewhere it only gets that."""


class Failpoint(NamedTuple):
    """An entry of the variable: at the `number`-th hit of a point, act."""

    point: str
    action: FailAction
    number: int
    process: str | None = None
    """The process that it is for; None for every one."""

    @property
    def marker(self) -> str:
        """The name of the file that is left when it has acted."""
        return f"{self.process or 'any'}-{self.point}-{self.action.value}-{self.number}"


class ArmedFailpoints:
    """The failpoints of this process, and how often each point was hit."""

    def __init__(self, points: tuple[Failpoint, ...], once: Path | None = None) -> None:
        self._points = points
        self._once = once
        self._hits: dict[str, int] = {}
        self._lock = threading.Lock()

    def due(self, point: str) -> FailAction | None:
        """Count a hit of a point, and return what is to be done there now."""
        with self._lock:
            self._hits[point] = number = self._hits.get(point, 0) + 1
        for each in self._points:
            if each.point == point and each.number == number and self._first(each):
                return each.action
        return None

    def hit(self, point: str) -> None:
        """Count a hit of a point, and act there if that is due."""
        action = self.due(point)
        if action in (FailAction.KILL, FailAction.TORN):
            kill_self()
        elif action is FailAction.ENOSPC or action is FailAction.EIO:
            raise _error(action, point)

    def pwrite(self, name: str) -> PositionedWrite:
        """Return `os.pwrite` with the points `NAME.before` and `NAME.after`."""

        def write(fd: int, data: bytes | memoryview, offset: int) -> int:
            action = self.due(f"{name}.before")
            if action is FailAction.KILL:
                kill_self()
            elif action is FailAction.ENOSPC or action is FailAction.EIO:
                raise _error(action, name)
            taken = data[: len(data) // 2] if action in (FailAction.SHORT, FailAction.TORN) else data
            written = os.pwrite(fd, taken, offset)
            if action is FailAction.TORN:
                kill_self()
            self.hit(f"{name}.after")
            return written

        return write

    def _first(self, point: Failpoint) -> bool:
        """Whether this is the first process in which a failpoint acts; it is not from here on."""
        if self._once is None:
            return True
        try:
            os.close(os.open(self._once / point.marker, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except OSError:
            return False
        return True


armed: ArmedFailpoints | None = None
"""The failpoints of this process; None, at no cost, unless it was started with the variable."""


def hit(point: str) -> None:
    """Let the process die, or raise OSError, if a failpoint is due here; else nothing."""
    if armed is not None:
        armed.hit(point)


def pwrite(name: str) -> PositionedWrite:
    """Return `os.pwrite`, with the points `NAME.before` and `NAME.after` if failpoints are armed."""
    return os.pwrite if armed is None else armed.pwrite(name)


def arm_from_environment(process: ProcessName, environ: Mapping[str, str] = os.environ) -> None:
    """Arm the failpoints of this process that the environment names; raises Refused if it cannot be read."""
    global armed
    text = environ.get(VARIABLE, "")
    points = tuple(each for each in parse(text) if each.process in (None, process))
    once = environ.get(ONCE_VARIABLE)
    armed = ArmedFailpoints(points, Path(once) if once else None) if points else None


def parse(text: str) -> list[Failpoint]:
    """Parse the value of the variable; raises Refused."""
    return [_parse_entry(entry.strip()) for entry in text.split(";") if entry.strip()]


def _parse_entry(entry: str) -> Failpoint:
    found = _ENTRY.fullmatch(entry)
    if found is None or found["action"] not in list(FailAction):
        actions = ", ".join(FailAction)
        raise Refused(
            f"{VARIABLE}: expected [api:|engine:|writer:]POINT=ACTION[@N] with an action of {actions}; "
            f"got {entry[:80]!r}",
            code="invalid_settings",
        )
    point = found["point"] if found["point"].endswith(_ENDS) else found["point"] + ".before"
    return Failpoint(point, FailAction(found["action"]), int(found["n"] or 1), found["process"])


def kill_self() -> None:
    """Send SIGKILL to this process; does not return."""
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


def _error(action: FailAction, point: str) -> OSError:
    number = errno.ENOSPC if action is FailAction.ENOSPC else errno.EIO
    return OSError(number, f"{os.strerror(number)} (failpoint {point})")
