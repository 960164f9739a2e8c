"""The lock of a log: a log has one writer."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from mavstream_server.log.errors import LogBusyError, LogMissingError


def lock_log(path: Path, *, create: bool) -> int:
    """Lock a log's directory, creating it if asked to; return the file descriptor that holds the lock.

    The lock is released when the descriptor is closed or the process dies. The file only names the holder.
    """
    if create:
        path.mkdir(parents=True, exist_ok=True)
    elif not path.is_dir():
        raise LogMissingError(path, "no log here; give a description to create one")
    fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        raise LogBusyError(
            path, f"process {holder} is writing this log; a log has one writer, close that one first"
        ) from None
    # Of fixed length: truncating the file first would make file systems wait for the disk.
    os.pwrite(fd, f"{os.getpid():<20}\n".encode(), 0)
    return fd
