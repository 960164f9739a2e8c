"""Findings of a check: damage, and what a repair did about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mavstream_server.core.storage.damage import Damage


@dataclass(slots=True)
class Finding:
    """Damage that a check found."""

    damage: Damage
    repair: str | None = None
    """What the repair did; None if it did nothing."""


@dataclass(slots=True)
class Findings:
    """The number of files and rows that a check read, and the damage that it found."""

    files: int = 0
    """Files that were read."""
    rows: int = 0
    """Intact rows of all logs."""
    format_version: int | None = None
    """The format version of the directory; None if it is unknown."""
    found: list[Finding] = field(default_factory=list)

    def add(self, damage: Damage, repair: str | None = None) -> None:
        """Add damage, and what was done about it."""
        self.found.append(Finding(damage, repair))

    def broken(self, file: Path, reason: str, repair: str | None = None) -> None:
        """Add a file that cannot be used as a whole, or is missing."""
        size = file.stat().st_size if file.is_file() else 0
        self.add(Damage(file, 0, size, 0, 0, reason), repair)
