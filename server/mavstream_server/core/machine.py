"""The machine that a process runs on: how much memory it has, and whether that has run out."""

from __future__ import annotations

import os
from pathlib import Path

_GROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def machine_memory() -> int:
    """Return the bytes of memory that this process may use: those of the machine, or of its container."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in _GROUP_LIMITS:
        try:
            return min(physical, int(file.read_text()))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    return physical


def private_memory() -> int:
    """Return the bytes of memory that this process has allocated, without the files that it maps."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def memory_kills() -> int:
    """Return how many processes the system has killed so far because memory had run out; 0 if unknown."""
    try:
        counters = Path("/proc/vmstat").read_text()
    except OSError:
        return 0
    for line in counters.splitlines():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return 0
