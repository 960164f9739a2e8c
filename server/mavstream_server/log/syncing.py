"""Syncing a log to disk from outside of its writer: any process may sync the files of a log."""

from __future__ import annotations

import os
from pathlib import Path

from mavstream_server.log.format.segment import list_segments, sync_directory


def sync_log(path: Path, serial: int = 0) -> int:
    """Sync the segments of a log from a serial number on, and return that of the last one.

    What was committed before the call survives power loss afterwards. Raises OSError.
    """
    names = [name for name in list_segments(path) if name.serial >= serial]
    for name in names:
        try:
            fd = os.open(name.within(path), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # removed by retention since it was listed
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)
    if not names:
        return serial
    if names[-1].serial > serial:
        sync_directory(path)
    return names[-1].serial
