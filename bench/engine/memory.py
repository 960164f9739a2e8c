"""Peak memory of a piece of work, above the memory in use at its start."""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
_MB = 1_000_000


def peak_above_start(work: Callable[[], object]) -> float:
    """Run the work and return the growth of resident memory at its peak, in MB.

    To be called in a fresh process: memory that earlier work has freed would be used again, unseen.
    """
    gc.collect()
    with suppress(OSError):  # otherwise the peak of the imports is included, and the result is too high
        _CLEAR.write_text(_RESET_PEAK)
    before = _status("VmRSS")
    work()
    return max(_status("VmHWM") - before, 0) / _MB


def _status(name: str) -> int:
    """Return a memory value of this process in bytes; the peak so far if the system has no such value."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))
