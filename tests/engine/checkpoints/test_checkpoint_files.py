"""Checkpoint files: atomic, checksummed, the last two are kept, damaged ones are left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from mavstream_server.core.storage import failpoints
from mavstream_server.core.storage.failpoints import FailAction
from mavstream_server.engine.checkpoints import file
from mavstream_server.engine.checkpoints.file import CheckpointHeader, CheckpointUnusable
from mavstream_server.engine.checkpoints.store import CheckpointStore

HEADER = CheckpointHeader("q", {"readings": 7}, 3, 1_000, plan_version=2, plan="{}", oldest_arrival=5)


def test_a_checkpoint_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "one.checkpoint"
    size = file.write(path, HEADER, b"state")
    assert size == path.stat().st_size
    assert file.read_header(path) == HEADER
    assert file.read(path) == (HEADER, b"state")
    assert list(tmp_path.iterdir()) == [path]


def test_a_flipped_byte_is_noticed_wherever_it_is(tmp_path: Path) -> None:
    path = tmp_path / "one.checkpoint"
    file.write(path, HEADER, b"state")
    whole = path.read_bytes()
    for index in range(len(whole)):
        path.write_bytes(whole[:index] + bytes([whole[index] ^ 1]) + whole[index + 1 :])
        with pytest.raises(CheckpointUnusable):
            file.read(path)
    path.write_bytes(whole[:-1])
    with pytest.raises(CheckpointUnusable, match="damaged"):
        file.read(path)


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.checkpoint"
    file.write(path, HEADER, b"state")
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + (file.VERSION + 1).to_bytes(4, "little") + whole[8:])
    with pytest.raises(CheckpointUnusable, match="has version 2, this program reads version 1"):
        file.read_header(path)


def test_the_last_two_checkpoints_are_kept_newest_first(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    for number in (1, 2, 3):
        store.write(number, HEADER, b"")
    assert [stored.number for stored in store.stored("q")] == [3, 2]
    store.write(6, HEADER, b"", keep=1)
    assert [stored.number for stored in store.stored("q")] == [6]


def test_a_checkpoint_that_is_written_after_a_newer_one_is_not_kept(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.write(6, HEADER, b"", keep=1)
    store.write(3, HEADER, b"")
    assert [stored.number for stored in store.stored("q")] == [6]


@pytest.mark.parametrize("point", ["write", "write.after", "fsync", "fsync.after", "rename"])
@pytest.mark.parametrize("action", [FailAction.ENOSPC, FailAction.EIO])
def test_a_failing_disk_leaves_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, action: FailAction
) -> None:
    (tmp_path / "results" / "q").mkdir(parents=True)
    store = CheckpointStore(tmp_path, synced_with=tmp_path / "results")
    store.write(1, HEADER, b"first")
    armed = failpoints.parse(f"checkpoint.{point}={action.value}")
    monkeypatch.setattr(failpoints, "armed", failpoints.ArmedFailpoints(tuple(armed)))
    with pytest.raises(OSError, match="failpoint"):
        store.write(2, HEADER, b"second")
    assert [path.name for path in (tmp_path / "q").iterdir()] == [store.path("q", 1).name]
    store.write(3, HEADER, b"third")
    assert store.read("q", 3) == (HEADER, b"third")


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    armed = failpoints.parse("checkpoint.write=short;checkpoint.write=short@3")
    monkeypatch.setattr(failpoints, "armed", failpoints.ArmedFailpoints(tuple(armed)))
    path = tmp_path / "one.checkpoint"
    file.write(path, HEADER, b"state" * 100)
    assert file.read(path) == (HEADER, b"state" * 100)


def test_a_checkpoint_with_a_damaged_header_is_left_out(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.write(1, HEADER, b"")
    store.write(2, HEADER, b"")
    store.path("q", 2).write_bytes(b"MvCp")
    assert [stored.number for stored in store.stored("q")] == [1]


def test_removing_checkpoints_of_an_unknown_query_does_nothing(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.remove("q")
    assert store.stored("q") == []


def test_a_checkpoint_whose_folder_was_replaced_is_discarded_without_an_error(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    (tmp_path / "q").write_bytes(b"")
    store.discard("q", 1)
    store.remove("q")
    assert store.stored("q") == []
    with pytest.raises(OSError, match="exists"):
        store.write(1, HEADER, b"")
