"""Failpoints: how they are written, when they act, and that they are inert otherwise."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mavstream_server.core.errors import Refused
from mavstream_server.core.storage import failpoints
from mavstream_server.core.storage.failpoints import ArmedFailpoints, FailAction, Failpoint, parse


@pytest.fixture(autouse=True)
def disarm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failpoints, "armed", None)


def test_entries_have_a_process_a_point_an_action_and_a_number() -> None:
    assert parse("engine:log.write.before=kill@17; log.fsync=enospc@3;a.b.after=eio") == [
        Failpoint("log.write.before", FailAction.KILL, 17, "engine"),
        Failpoint("log.fsync.before", FailAction.ENOSPC, 3),
        Failpoint("a.b.after", FailAction.EIO, 1),
    ]
    assert parse("") == parse(" ; ") == []


@pytest.mark.parametrize(
    "text", ["log.write", "log=kill", "log.write=explode", "log.write=kill@0", "x:a.b=kill"]
)
def test_an_entry_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="MAVSTREAM_FAILPOINTS"):
        parse(text)


def test_nothing_is_armed_without_the_variable_or_for_another_process() -> None:
    failpoints.arm_from_environment("api", {})
    assert failpoints.armed is None
    failpoints.arm_from_environment("api", {"MAVSTREAM_FAILPOINTS": "engine:a.b=kill"})
    assert failpoints.armed is None
    failpoints.hit("a.b.before")


def test_an_error_is_raised_at_the_given_hit_and_only_there() -> None:
    failpoints.arm_from_environment("api", {"MAVSTREAM_FAILPOINTS": "api:a.b=enospc@2;a.b.after=eio"})
    failpoints.hit("a.b.before")
    with pytest.raises(OSError, match=r"failpoint a\.b\.before") as full:
        failpoints.hit("a.b.before")
    failpoints.hit("a.b.before")
    with pytest.raises(OSError, match="failpoint") as broken:
        failpoints.hit("a.b.after")
    assert (full.value.errno, broken.value.errno) == (errno.ENOSPC, errno.EIO)


def test_a_short_write_takes_half_of_the_bytes(tmp_path: Path) -> None:
    armed = ArmedFailpoints((Failpoint("a.write.before", FailAction.SHORT, 2),))
    write, fd = armed.pwrite("a.write"), os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    assert [write(fd, b"12345678", 0) for _ in range(3)] == [8, 4, 8]
    os.close(fd)


def test_an_entry_acts_once_for_all_processes_with_the_same_directory(tmp_path: Path) -> None:
    point = Failpoint("a.b.before", FailAction.EIO, 1)
    with pytest.raises(OSError, match="failpoint"):
        ArmedFailpoints((point,), tmp_path).hit("a.b.before")
    ArmedFailpoints((point,), tmp_path).hit("a.b.before")
    assert [file.name for file in tmp_path.iterdir()] == [point.marker]


def test_a_process_is_killed_at_its_point() -> None:
    program = (
        "from mavstream_server.core.storage import failpoints\n"
        "failpoints.arm_from_environment('engine')\n"
        "for number in range(9):\n    print(number, flush=True)\n    failpoints.hit('a.b.after')\n"
    )
    env = {**os.environ, "MAVSTREAM_FAILPOINTS": "engine:a.b.after=kill@3"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.split()) == (-9, ["0", "1", "2"])
