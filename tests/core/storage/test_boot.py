"""Restarts of the machine are noticed unless the server stopped in order."""

from __future__ import annotations

from pathlib import Path

from mavstream_server.core.storage.boot import forget_boot, machine_restarted, note_boot


def booted(folder: Path, name: str) -> Path:
    file = folder / "boot_id"
    file.write_text(f"{name}\n")
    return file


def test_a_new_directory_has_seen_no_restart(tmp_path: Path) -> None:
    assert not machine_restarted(tmp_path, booted(tmp_path, "one"))


def test_a_crash_of_the_server_is_no_restart(tmp_path: Path) -> None:
    note_boot(tmp_path, booted(tmp_path, "one"))
    assert not machine_restarted(tmp_path, booted(tmp_path, "one"))


def test_another_boot_is_a_restart(tmp_path: Path) -> None:
    note_boot(tmp_path, booted(tmp_path, "one"))
    assert machine_restarted(tmp_path, booted(tmp_path, "two"))


def test_an_orderly_stop_before_another_boot_is_none(tmp_path: Path) -> None:
    note_boot(tmp_path, booted(tmp_path, "one"))
    forget_boot(tmp_path)
    assert not machine_restarted(tmp_path, booted(tmp_path, "two"))


def test_a_system_without_boot_ids_never_reports_one(tmp_path: Path) -> None:
    note_boot(tmp_path, tmp_path / "missing")
    assert not machine_restarted(tmp_path, tmp_path / "missing")
