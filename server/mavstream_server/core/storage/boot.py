"""Detects that the machine was restarted while a server used its data directory: a loss of power, mostly.

The file `boot` has the id of the machine's boot while a server runs. An orderly stop removes it.
"""

from __future__ import annotations

from pathlib import Path

_ID = Path("/proc/sys/kernel/random/boot_id")
BOOT_FILE = "boot"


def machine_restarted(data: Path, id_file: Path = _ID) -> bool:
    """Return whether the machine was restarted while a server used the directory."""
    try:
        noted = (data / BOOT_FILE).read_text()
    except OSError:
        return False
    return noted != _current(id_file)


def note_boot(data: Path, id_file: Path = _ID) -> None:
    """Note that a server uses the directory since the present boot; raises OSError."""
    (data / BOOT_FILE).write_text(_current(id_file))


def forget_boot(data: Path) -> None:
    """Note an orderly stop."""
    (data / BOOT_FILE).unlink(missing_ok=True)


def _current(id_file: Path) -> str:
    """Return the id of the present boot; empty where the system has none."""
    try:
        return id_file.read_text().strip()
    except OSError:
        return ""
