"""Damage of checkpoints: whatever it does to the newest one, the one before it can still be used."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.damage import damage_newest

from mavstream_server.engine.checkpoints.file import CheckpointHeader, CheckpointUnusable
from mavstream_server.engine.checkpoints.store import CheckpointStore

HEADER = CheckpointHeader("q", {"readings": 7}, 3, 1_000)


@pytest.mark.parametrize("pick", [0, 100, 200])
def test_the_newest_of_two_checkpoints_is_damaged(tmp_path: Path, pick: int) -> None:
    store = CheckpointStore(tmp_path / "checkpoints")
    store.write(1, HEADER, b"first")
    assert damage_newest(tmp_path, ["q"], pick) == 0, "the only one"
    store.write(2, HEADER, b"second")
    assert damage_newest(tmp_path, ["q"], pick) == 1
    with pytest.raises(CheckpointUnusable):
        store.read("q", 2)
    assert store.read("q", 1) == (HEADER, b"first")
    assert damage_newest(tmp_path, ["q"], pick) == 0, "the newest is damaged already"
    store.write(3, HEADER, b"third")
    assert damage_newest(tmp_path, ["q"], pick) == 0, "the one before is damaged"
    store.write(4, HEADER, b"fourth")
    assert damage_newest(tmp_path, ["q"], pick) == 1
