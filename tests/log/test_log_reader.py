"""Readers and cursors: any number, in any process, each with its own position."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_server import log
from mavstream_server.columns.column import Column
from mavstream_server.log import (
    Backlog,
    FrameKind,
    LogCorruptError,
    LogDescription,
    LogOptions,
    LogReader,
    LogWriter,
    PositionAheadError,
    gather,
)

NUMBERS = LogDescription(Schema((Field("n", FieldType.INT), Field("s", FieldType.STRING))))
SMALL = LogOptions(segment_bytes=4096)


def numbers(start: int, stop: int) -> dict[str, Column]:
    return {
        "n": Column(np.arange(start, stop)),
        "s": Column.from_list(FieldType.STRING, [f"s{n}" for n in range(start, stop)]),
    }


def fill(writer: LogWriter, frames: int, size: int = 10) -> None:
    for _ in range(frames):
        writer.append(numbers(writer.end, writer.end + size), size, writer.end * 1000)


def rest(cursor: log.Cursor) -> list[int]:
    rows: list[int] = []
    while (step := cursor.next()) is not None:
        frame, start = step
        rows += frame.column("n").values[start:].tolist()
        texts = frame.column("s").to_list(FieldType.STRING)
        assert texts == [f"s{n}" for n in range(frame.first_position, frame.stop)]
    return rows


def test_the_package_lists_its_names() -> None:
    for name in log.__all__:
        assert hasattr(log, name)
    assert log.__all__ == sorted(log.__all__, key=lambda name: (name[0].islower(), name))


def test_a_cursor_follows_the_writer_across_segments(tmp_path: Path) -> None:
    with LogWriter(tmp_path, NUMBERS, SMALL) as writer:
        reader = LogReader(tmp_path)
        cursor = reader.cursor()
        assert cursor.next() is None
        assert cursor.take(5) == []
        for _ in range(50):
            fill(writer, 1)
            assert rest(cursor) == list(range(writer.end - 10, writer.end))
            assert (cursor.position, reader.end) == (writer.end, writer.end)
        assert len(writer.segments) > 3
        assert reader.begin == 0


def test_a_cursor_can_seek_to_any_position(tmp_path: Path) -> None:
    with LogWriter(tmp_path, NUMBERS, SMALL) as writer:
        fill(writer, 40, 7)
    reader = LogReader(tmp_path)
    cursor = reader.cursor(0)
    for position in (*range(0, 280, 11), 280, 3, 279, 70, 0):
        cursor.seek(position)
        assert rest(cursor) == list(range(position, 280))
        # A new reader must load the texts ahead of the position.
        assert rest(LogReader(tmp_path).cursor(position)) == list(range(position, 280))
    for position in (281, -1):
        with pytest.raises(PositionAheadError, match=r"from 0 to 280, where the log ends"):
            cursor.seek(position)


def test_a_cursor_at_a_row_reads_the_marks_just_ahead_of_it(tmp_path: Path) -> None:
    with LogWriter(tmp_path, NUMBERS) as writer:
        fill(writer, 2)
        writer.mark(FrameKind.CLOCK, 10**9)
        fill(writer, 1)
        writer.mark(FrameKind.CLOCK, 10**10)
    reader = LogReader(tmp_path)
    step = reader.cursor(20).next()
    assert step is not None
    assert (step[0].kind, step[0].after) == (FrameKind.CLOCK, 10**6)
    step = reader.cursor().next()
    assert step is not None
    assert step[0].after == 10**7


def test_a_cursor_can_seek_to_an_arrival_time(tmp_path: Path) -> None:
    with LogWriter(tmp_path, NUMBERS, SMALL) as writer:
        fill(writer, 40)
    cursor = LogReader(tmp_path).cursor()
    for arrival, position in ((0, 0), (1, 10), (10_000, 10), (199_999, 200), (390_000, 390)):
        cursor.seek_arrival(arrival)
        assert cursor.position == position
        assert rest(cursor) == list(range(position, 400))
    cursor.seek_arrival(390_001)
    assert cursor.position == 400
    assert cursor.next() is None


def test_frames_are_split_at_the_limits_of_trains(tmp_path: Path) -> None:
    with LogWriter(tmp_path, NUMBERS, SMALL) as writer:
        fill(writer, 30)
    cursor = LogReader(tmp_path).cursor(4)
    seen: list[int] = []
    while spans := cursor.take(23):
        columns = gather(spans, ["n", "s"])
        assert len(columns["n"]) == min(23, 300 - 4 - len(seen))
        seen += columns["n"].values.tolist()
        assert columns["s"].to_list(FieldType.STRING) == [f"s{n}" for n in columns["n"].values.tolist()]
        assert cursor.position == seen[-1] + 1
    assert seen == list(range(4, 300))
    cursor.seek(0)
    cursor.take(3)
    step = cursor.next()
    assert step is not None
    assert step[1] == 3


def test_the_backlog_is_known_without_reading(tmp_path: Path) -> None:
    with LogWriter(tmp_path, NUMBERS, SMALL) as writer:
        reader = LogReader(tmp_path)
        cursor = reader.cursor(0)
        assert cursor.backlog == Backlog(0, 0)
        fill(writer, 20)
        behind = cursor.backlog
        assert behind.rows == 200
        assert 0.8 * writer.nbytes < behind.nbytes < writer.nbytes
        decodes = reader.decodes
        assert reader.cursor(150).backlog.rows == 50
        assert reader.decodes - decodes <= 1
        rest(cursor)
        assert cursor.backlog == Backlog(0, 0)


def test_many_cursors_decode_a_frame_once(tmp_path: Path) -> None:
    with LogWriter(tmp_path, NUMBERS) as writer:
        fill(writer, 25)
    reader = LogReader(tmp_path)
    cursors = [reader.cursor(0) for _ in range(20)]
    for cursor in cursors:
        rest(cursor)
    assert reader.decodes == 25
    first, second = reader.cursor(0).next(), reader.cursor(0).next()
    assert first is not None
    assert second is not None
    assert first[0] is second[0]


def test_the_cache_is_bounded_and_unused_maps_are_released(tmp_path: Path) -> None:
    with LogWriter(tmp_path, NUMBERS, SMALL) as writer:
        fill(writer, 100)
        segments = len(writer.segments)
    reader = LogReader(tmp_path, cache_bytes=20_000)
    cursor = reader.cursor(0)
    rest(cursor)
    gc.collect()
    assert segments > 8
    assert reader.mapped <= 3
    assert len(reader.cache) < 20
    kept = next(iter(reader.cache.values())).column("n")
    del reader, cursor
    assert len(kept.values.tolist()) == 10  # columns outlive the reader


OTHER_PROCESS = """
import sys
from pathlib import Path
from mavstream_protocol.schema import FieldType
from mavstream_server.log import LogReader

cursor = LogReader(Path(sys.argv[1])).cursor()
print("ready", flush=True)
for line in sys.stdin:
    total, texts = 0, ""
    while (step := cursor.next()) is not None:
        total += int(step[0].column("n").values.sum())
        texts = step[0].column("s").to_list(FieldType.STRING)[-1]
    print(cursor.position, total, texts, flush=True)
"""


def test_a_reader_in_another_process_reads_appended_rows(tmp_path: Path) -> None:
    with (
        LogWriter(tmp_path, NUMBERS, SMALL) as writer,
        subprocess.Popen(
            [sys.executable, "-c", OTHER_PROCESS, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for frames in (1, 3, 40, 1):
            before = writer.end
            fill(writer, frames)
            process.stdin.write("look\n")
            process.stdin.flush()
            expected = f"{writer.end} {sum(range(before, writer.end))} s{writer.end - 1}\n"
            assert process.stdout.readline() == expected
        process.stdin.close()
        assert process.wait() == 0


def test_a_reader_remaps_a_segment_that_was_enlarged(tmp_path: Path) -> None:
    with LogWriter(tmp_path, NUMBERS, SMALL) as writer:
        fill(writer, 1)
    cursor = LogReader(tmp_path).cursor(0)
    assert rest(cursor) == list(range(10))
    with LogWriter(tmp_path, options=LogOptions(segment_bytes=1 << 20)) as writer:
        fill(writer, 100)
        assert len(writer.segments) == 1
    assert rest(cursor) == list(range(10, 1010))


def test_a_train_of_marks_alone_is_bounded(tmp_path: Path) -> None:
    with LogWriter(tmp_path, NUMBERS) as writer:
        for n in range(10):
            writer.mark(FrameKind.CLOCK, n)
        fill(writer, 1)
    cursor = LogReader(tmp_path).cursor(0)
    assert [len(cursor.take(5, frames=4)) for _ in range(5)] == [4, 4, 3, 1, 0]


def test_a_missing_last_segment_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with LogWriter(tmp_path, NUMBERS, SMALL) as writer:
        fill(writer, 20)
    max(tmp_path.glob("*.segment")).unlink()
    with pytest.raises(LogCorruptError, match="sealed and none follows; open the log with its writer"):
        LogReader(tmp_path).cursor(0)
    with LogWriter(tmp_path) as writer:
        position = writer.end
        fill(writer, 1)
    assert rest(LogReader(tmp_path).cursor(0)) == list(range(position + 10))
