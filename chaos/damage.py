"""Damage: the newest checkpoint of a query becomes useless while the server is down."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from mavstream_server.engine.checkpoints.file import CheckpointUnusable
from mavstream_server.engine.checkpoints.store import CheckpointStore


def damage_newest(data: Path, queries: Sequence[str], pick: int) -> int:
    """Damage the newest checkpoint of a query that has two; returns how many were damaged, 0 or 1.

    Without another one the query would have to begin anew: it has one if it was just started, paused or
    resumed, or if the other one was damaged before.
    """
    query = queries[pick % len(queries)]
    files = sorted((data / "checkpoints" / query).glob("*.checkpoint"))
    if len(files) < 2 or not all(_intact(data, query, file) for file in files):
        return 0
    size = files[-1].stat().st_size
    with files[-1].open("r+b") as file:
        match pick // 100 % 3:
            case 0:
                os.truncate(file.fileno(), size // 2)
            case 1:
                _flip(file.fileno(), size - 1)
            case _:
                _flip(file.fileno(), size // 100)
    return 1


def _intact(data: Path, query: str, file: Path) -> bool:
    try:
        CheckpointStore(data / "checkpoints").read(query, int(file.stem))
    except CheckpointUnusable:
        return False
    return True


def _flip(fd: int, offset: int) -> None:
    (byte,) = os.pread(fd, 1, offset)
    os.pwrite(fd, bytes([byte ^ 0x55]), offset)
