"""Damage: the newest checkpoint of a query becomes useless while the server is down."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def damage_newest(data: Path, queries: Sequence[str], pick: int) -> int:
    """Damage the newest checkpoint of a query that has two; returns how many were damaged, 0 or 1.

    A query with one checkpoint has just been started, paused or resumed: it would have to begin anew.
    """
    folder = data / "checkpoints" / queries[pick % len(queries)]
    files = sorted(folder.glob("*.checkpoint"))
    if len(files) < 2:
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


def _flip(fd: int, offset: int) -> None:
    (byte,) = os.pread(fd, 1, offset)
    os.pwrite(fd, bytes([byte ^ 0x55]), offset)
