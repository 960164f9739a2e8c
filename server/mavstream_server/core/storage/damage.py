"""Damage in files: what was found where, collected for logs, metrics and health checks."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

_LOG = logging.getLogger("mavstream.damage")

MOST_SHOWN = 100
"""How many damages are kept for display; all are counted."""


class Damage(NamedTuple):
    """Bytes of a file that cannot be used, and the rows that are lost with them."""

    file: Path
    offset: int
    """The byte offset at which the damage begins."""
    nbytes: int
    start: int
    """The position of the first lost row."""
    stop: int
    """The position after the last lost row; equal to `start` if no row is lost."""
    reason: str

    @property
    def rows(self) -> int:
        """The number of lost rows."""
        return self.stop - self.start

    def __str__(self) -> str:
        lost = f"rows {self.start} to {self.stop - 1} are lost" if self.rows else "no row is lost"
        return f"{self.file}: {self.nbytes} bytes at offset {self.offset}: {self.reason}; {lost}"


DamageListener = Callable[[Damage], None]
"""Called once for each damage that is found."""


class DamageReport:
    """All damage that a server has found since it started. Each damage is logged and counted once."""

    def __init__(self) -> None:
        self.found: dict[tuple[Path, int], Damage] = {}
        """The first damages, by file and byte offset."""
        self.counts: Counter[str] = Counter()
        """Damages by the directory that they are in: the name of a stream, query or table."""
        self.rows: Counter[str] = Counter()
        """Lost rows by directory."""
        self._seen: set[tuple[Path, int]] = set()

    def add(self, damage: Damage) -> None:
        """Log and count a damage, unless it is known."""
        key = (damage.file, damage.offset)
        if key in self._seen:
            return
        self._seen.add(key)
        owner = damage.file.parent.name
        self.counts[owner] += 1
        self.rows[owner] += damage.rows
        if len(self.found) < MOST_SHOWN:
            self.found[key] = damage
        log_damage(damage)

    def add_all(self, damages: Iterable[Damage]) -> None:
        """Log and count several damages."""
        for damage in damages:
            self.add(damage)


def log_damage(damage: Damage) -> None:
    """Log a damage."""
    _LOG.error(
        "damaged file",
        extra={
            "file": str(damage.file),
            "offset": damage.offset,
            "bytes": damage.nbytes,
            "start": damage.start,
            "stop": damage.stop,
            "rows": damage.rows,
            "reason": damage.reason,
        },
    )
