"""The data directory: locked by the one process that may change it, and readable by its owner only."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from mavstream_protocol.errors import MavstreamError

PRIVATE = 0o077
"""The umask of all processes that write data: files get mode 0600, directories 0700."""

LOCK_FILE = "server.lock"


class DataUnusable(MavstreamError):
    """The data directory cannot be used."""

    code = "data_unusable"


@contextlib.contextmanager
def locked(data: Path, *, create: bool = True) -> Iterator[None]:
    """Lock the data directory: two processes on the same logs would destroy them. Raises DataUnusable."""
    os.umask(PRIVATE)
    try:
        if create:
            data.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(PermissionError):  # the directory of another user, who granted access
            data.chmod(0o700)
        handle = os.open(data / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        reason = "it is a file" if data.is_file() else error.strerror
        raise DataUnusable(
            f"the data directory {data} cannot be used: {reason}; give another directory with --data"
        ) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.pread(handle, 32, 0).decode(errors="replace").strip()
        os.close(handle)
        raise DataUnusable(
            f"the data directory {data} is in use by another server (process {owner or 'unknown'}): "
            "stop it, or give another directory with --data"
        ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, str(os.getpid()).encode(), 0)
    try:
        yield
    finally:
        os.close(handle)
