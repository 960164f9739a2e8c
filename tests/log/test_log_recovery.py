"""Appended rows survive the death of the writer; incomplete frames are truncated."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_server.columns.column import Column
from mavstream_server.log import (
    FrameKind,
    GapCause,
    GapError,
    LogClosedError,
    LogCorruptError,
    LogDescription,
    LogOptions,
    LogReader,
    LogWriter,
)

EVENTS = LogDescription(Schema((Field("t", FieldType.TIMESTAMP), Field("s", FieldType.STRING))), "t", 10)
NUMBERS = LogDescription(Schema((Field("n", FieldType.INT),)))


def events(*rows: tuple[int, str]) -> dict[str, Column]:
    return {
        "t": Column.from_list(FieldType.TIMESTAMP, [row[0] for row in rows]),
        "s": Column.from_list(FieldType.STRING, [row[1] for row in rows]),
    }


def all_rows(path: Path) -> list[tuple[int, str]]:
    cursor = LogReader(path).cursor(0)
    rows: list[tuple[int, str]] = []
    while (step := cursor.next()) is not None:
        if step[0].rows:
            times = step[0].column("t").to_list(FieldType.TIMESTAMP)
            rows += zip(times, step[0].column("s").to_list(FieldType.STRING), strict=True)
    return rows


def newest(path: Path) -> Path:
    return max(path.glob("*.segment"))


def test_a_tail_torn_at_any_byte_is_truncated_after_the_last_complete_frame(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with LogWriter(log, EVENTS, LogOptions(segment_bytes=4096)) as writer:
        writer.append(events((100, "a"), (110, "b")), 2, 1, producer=1, sequence=1)
        whole = writer.nbytes
        writer.append(events((500, "c")), 1, 2, producer=2, sequence=1)
        length = writer.nbytes
    assert all_rows(log) == [(100, "a"), (110, "b"), (500, "c")]
    for size in range(whole, length):
        torn = tmp_path / "torn"
        shutil.copytree(log, torn)
        os.truncate(newest(torn), size)
        with LogWriter(torn, options=LogOptions(segment_bytes=4096)) as writer:
            assert (writer.end, writer.cut_bytes, writer.nbytes) == (2, length - whole, whole)
            assert (writer.watermark, writer.last_arrival) == (100, 1)
            assert (writer.last_sequence(1), writer.last_sequence(2)) == (1, 0)
            assert writer.append(events((120, "c"), (130, "a")), 2, 3) == 2
        assert all_rows(torn) == [(100, "a"), (110, "b"), (120, "c"), (130, "a")]
        shutil.rmtree(torn)


def flip(file: Path, offset: int) -> None:
    with file.open("r+b") as stream:
        stream.seek(offset)
        (byte,) = stream.read(1)
        stream.seek(offset)
        stream.write(bytes([byte ^ 0x41]))


def test_a_flipped_byte_in_the_last_frame_loses_that_frame_and_no_position_is_used_again(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    small = LogOptions(segment_bytes=4096)
    with LogWriter(log, EVENTS, small) as writer:
        writer.append(events((100, "a")), 1, 1, producer=1, sequence=1)
        whole = writer.nbytes
        writer.append(events((500, "c")), 1, 2, producer=1, sequence=2)
        length = writer.nbytes
    for offset in range(whole, length):
        damaged = tmp_path / "damaged"
        shutil.copytree(log, damaged)
        flip(newest(damaged), offset)
        with LogWriter(damaged, options=small) as writer:
            assert (writer.end, writer.cut_bytes) == (2, 0)
            (found,) = writer.damage
            assert (found.offset, found.nbytes, found.start, found.stop) == (whole, length - whole, 1, 2)
            assert writer.append(events((600, "d")), 1, 2) == 2
        cursor = LogReader(damaged).cursor(0)
        assert [frame.first_position for frame, _, _ in cursor.take(10)] == [0]
        with pytest.raises(GapError, match="rows 1 to 1 are damaged") as gap:
            cursor.take(10)
        assert gap.value.cause is GapCause.DAMAGE
        assert [frame.column("s").to_list(FieldType.STRING) for frame, _, _ in cursor.take(10)] == [["d"]]
        shutil.rmtree(damaged)


def test_uncommitted_bytes_are_truncated(tmp_path: Path) -> None:
    with LogWriter(tmp_path, EVENTS) as writer:
        writer.append(events((100, "a")), 1, 1)
        length = writer.nbytes
    with newest(tmp_path).open("r+b") as file:
        file.seek(length)
        file.write(b"half a frame")
    with LogWriter(tmp_path) as writer:
        assert writer.cut_bytes == len(b"half a frame")
        writer.append(events((200, "b")), 1, 2)
    with LogWriter(tmp_path) as writer:
        assert (writer.cut_bytes, writer.end) == (0, 2)


def test_a_reopened_writer_restores_the_state_of_all_segments(tmp_path: Path) -> None:
    options = LogOptions(segment_bytes=4096)
    with LogWriter(tmp_path, EVENTS, options) as writer:
        writer.append(events((100, "a")), 1, 1, producer=7, sequence=70)
        for n in range(50):
            writer.append(events((200 + n, f"x{n}")), 1, 2 + n, producer=8, sequence=n)
        writer.mark(FrameKind.IDLE, 90, producer=7)
        assert len(writer.segments) > 2
        expected = (writer.end, writer.watermark, writer.last_arrival, writer.nbytes)
    with LogWriter(tmp_path, options=options) as writer:
        assert (
            (writer.end, writer.watermark, writer.last_arrival, writer.nbytes)
            == expected
            == (
                51,
                239,
                90,
                writer.nbytes,
            )
        )
        assert (writer.last_sequence(7), writer.last_sequence(8)) == (70, 49)
        writer.append(events((210, "x3"), (150, "new")), 2, 95, producer=7)
        writer.append(events((400, "x49")), 1, 95, producer=8)
        assert writer.watermark == 239  # producer 7 is live again and holds the watermark back
    assert all_rows(tmp_path)[-3:] == [(210, "x3"), (150, "new"), (400, "x49")]


def test_unfinished_segment_files_are_removed(tmp_path: Path) -> None:
    with LogWriter(tmp_path, EVENTS) as writer:
        writer.append(events((100, "a")), 1, 1)
    empty, zeros, draft = (
        tmp_path / f"{1:020d}-{2:010d}.segment",
        tmp_path / f"{1:020d}-{3:010d}.segment",
        tmp_path / "segment.new",
    )
    empty.touch()
    zeros.write_bytes(bytes(4096))
    draft.write_bytes(b"anything")
    with LogWriter(tmp_path) as writer:
        assert set(writer.dropped) == {empty, zeros, draft}
        assert writer.append(events((100, "b")), 1, 1) == 1
    assert all_rows(tmp_path) == [(100, "a"), (100, "b")]


@pytest.mark.parametrize("content", [b"x", b"something else entirely" * 100])
def test_a_file_with_foreign_content_is_named_and_left_behind(tmp_path: Path, content: bytes) -> None:
    with LogWriter(tmp_path, EVENTS) as writer:
        writer.append(events((100, "a")), 1, 1)
    foreign = tmp_path / f"{1:020d}-{2:010d}.segment"
    foreign.write_bytes(content)
    with LogWriter(tmp_path) as writer:
        assert writer.damage[0].file == foreign
        position = writer.append(events((200, "b")), 1, 2)
    assert foreign.read_bytes()[128:].rstrip(b"\0") == content[128 : len(content) & ~7]
    cursor = LogReader(tmp_path).cursor(position)
    assert cursor.next() is not None
    assert cursor.position == position + 1


def test_a_garbled_description_is_refused(tmp_path: Path) -> None:
    LogWriter(tmp_path, EVENTS).close()
    (tmp_path / "log.json").write_text("{}")
    with pytest.raises(LogCorruptError, match="not a log description"):
        LogReader(tmp_path)


def test_a_log_goes_on_behind_a_segment_without_any_intact_frame(tmp_path: Path) -> None:
    LogWriter(tmp_path, EVENTS).close()
    with newest(tmp_path).open("r+b") as file:
        file.seek(128)
        file.write(b"\1\2\3\4")
    with LogWriter(tmp_path) as writer:
        assert [one.offset for one in writer.damage] == [128]
        writer.append(events((100, "a")), 1, 1)
        assert len(writer.segments) == 2
    assert all_rows(tmp_path) == [(100, "a")]


def test_a_crash_between_creating_a_segment_and_sealing_the_last_is_repaired(tmp_path: Path) -> None:
    options = LogOptions(segment_bytes=4096)
    with LogWriter(tmp_path, EVENTS, options) as writer:
        while len(writer.segments) == 1:
            writer.append(events((100, "a")), 1, 1)
        count = writer.end
    first = min(tmp_path.glob("*.segment"))
    with first.open("r+b") as file:  # its state before it was sealed
        file.seek(8 * 8)
        file.write(bytes(8))
        file.seek(10 * 8)
        file.write(bytes(8))
        file.truncate(8192)
    reader = LogReader(tmp_path)
    cursor = reader.cursor(0)
    while cursor.next() is not None:
        pass
    assert cursor.position == count - 1
    LogWriter(tmp_path).close()
    assert cursor.next() is not None
    assert cursor.position == count


def test_a_failed_write_closes_the_writer_and_keeps_the_rows_before_it(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, NUMBERS)
    writer.append({"n": Column(np.arange(10))}, 10, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))  # as on a full disk
    try:
        with pytest.raises(OSError, match="File too large"):
            writer.append({"n": Column(np.arange(10_000))}, 10_000, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(LogClosedError, match="an earlier write failed"):
        writer.append({"n": Column(np.arange(10))}, 10, 3)
    assert LogReader(tmp_path).end == 10
    with LogWriter(tmp_path) as writer:
        assert (writer.end, writer.last_arrival) == (10, 1)
        assert writer.cut_bytes > 10_000
        assert writer.append({"n": Column(np.arange(10_000))}, 10_000, 2) == 10


KILLED_WRITER = """
import sys
from pathlib import Path
import numpy as np
from mavstream_server.columns.column import Column
from mavstream_server.log import LogOptions, LogWriter, NewFrame

writer = LogWriter(Path(sys.argv[1]), options=LogOptions(segment_bytes=65536))
n = writer.end
while True:
    frames = [NewFrame({"n": Column(np.arange(k, k + 10))}, 10) for k in range(n, n + 40, 10)]
    writer.append_many(frames, n)
    n += 40
    sys.stdout.write(f"{n}\\n")
    sys.stdout.flush()
"""


def test_a_killed_writer_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    LogWriter(tmp_path, NUMBERS).close()
    for round_ in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", KILLED_WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for _ in range(50 + 37 * round_):
                reported = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            rest = process.stdout.read().split("\n")
        # The last line may itself be incomplete.
        reported = max([reported, *(int(line) for line in rest[:-1])])
        with LogWriter(tmp_path) as writer:
            assert writer.end >= reported
            assert writer.end % 40 == 0
            end = writer.end
        cursor = LogReader(tmp_path).cursor(0)
        seen = np.concatenate([frame.column("n").values for frame, _, _ in cursor.take(end)])
        assert np.array_equal(seen, np.arange(end))
