"""A writer that is killed, or whose disk fails, at any failpoint loses and doubles no acked frame."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mavstream_protocol.schema import FieldType
from mavstream_server.log import LogReader, LogWriter

FRAMES, ROWS = 60, 4
WRITER = f"""
import sys
from pathlib import Path
from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_server.columns.column import Column
from mavstream_server.core.storage import failpoints
from mavstream_server.log import LogDescription, LogOptions, LogWriter
from mavstream_server.log.options import Sync
failpoints.arm_from_environment("api")
schema = Schema((Field("n", FieldType.INT), Field("s", FieldType.STRING)))
options = LogOptions(segment_bytes=4096, sync=Sync.EACH)
writer = LogWriter(Path(sys.argv[1]), LogDescription(schema), options)
while (sequence := writer.last_sequence(1) + 1) <= {FRAMES}:
    numbers = range((sequence - 1) * {ROWS}, sequence * {ROWS})
    columns = {{
        "n": Column.from_list(FieldType.INT, list(numbers)),
        "s": Column.from_list(FieldType.STRING, [f"text {{n % 50}}" for n in numbers]),
    }}
    writer.append(columns, {ROWS}, sequence, producer=1, sequence=sequence)
    print(sequence, flush=True)
"""
POINTS = ("create", "rename", "write", "fsync", "seal")
KILLS = [f"log.{point}.{end}=kill" for point in POINTS for end in ("before", "after")] + [
    "log.commit.after=kill"
]
FAULTS = [*KILLS, "log.write=torn", "log.write=short"] + [
    f"log.{point}={error}" for point in POINTS for error in ("enospc", "eio")
]


def run_writer(log: Path, failpoints: str) -> tuple[int, list[int]]:
    """Run a writer; returns its exit code and the sequences that it acked."""
    env = {**os.environ, "MAVSTREAM_FAILPOINTS": failpoints}
    done = subprocess.run(
        [sys.executable, "-c", WRITER, str(log)],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, [int(line) for line in done.stdout.split()]


def numbers_in(log: Path) -> list[int]:
    cursor, found = LogReader(log).cursor(0), []
    while (step := cursor.next()) is not None:
        if step[0].rows:
            numbers = step[0].column("n").to_list(FieldType.INT)
            texts = step[0].column("s").to_list(FieldType.STRING)
            assert texts == [f"text {n % 50}" for n in numbers]
            found += numbers
    return found


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failed_writer_recovers_every_acked_frame_once(tmp_path: Path, fault: str) -> None:
    log = tmp_path / "log"
    number = 1 if ".seal" in fault else 2 if ".create" in fault or ".rename" in fault else 17
    code, acked = run_writer(log, f"{fault}@{number}")
    if fault.endswith("short"):
        assert (code, acked) == (0, list(range(1, FRAMES + 1)))
    else:
        assert code == (-9 if fault.endswith(("kill", "torn")) else 1)
        assert acked == list(range(1, len(acked) + 1)), "the writer stopped at the fault"
        assert 0 < len(acked) < FRAMES
    with LogWriter(log) as writer:
        kept = writer.last_sequence(1)
        assert len(acked) <= kept <= len(acked) + 1, "at most the frame without an ack is there, too"
        assert writer.end == kept * ROWS
    code, more = run_writer(log, "")
    assert (code, more) == (0, list(range(kept + 1, FRAMES + 1)))
    assert numbers_in(log) == list(range(FRAMES * ROWS))
