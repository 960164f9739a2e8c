"""Damaged frames are found when they are read; the rows before and behind them are served and recovered."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.damaged_files import flip, frame_offsets, read_all, segments

from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_server.columns.column import Column
from mavstream_server.core.storage.damage import Damage
from mavstream_server.log import (
    GapCause,
    GapError,
    LogDescription,
    LogOptions,
    LogReader,
    LogWriter,
)
from mavstream_server.log.checked_files import checked_file

SCHEMA = Schema((Field("n", FieldType.INT), Field("s", FieldType.STRING)))
SMALL = LogOptions(segment_bytes=4096)


def append(writer: LogWriter, number: int, text: str, producer: int = 1) -> None:
    columns = {
        "n": Column.from_list(FieldType.INT, [number]),
        "s": Column.from_list(FieldType.STRING, [text]),
    }
    writer.append(columns, 1, 1000 + number, producer=producer, sequence=number + 1)


def write(log: Path, rows: int, texts: int = 5, options: LogOptions = SMALL) -> dict[int, tuple[int, str]]:
    """Write frames of one row, with texts that repeat; returns what is expected by position."""
    with LogWriter(log, LogDescription(SCHEMA), options) as writer:
        for number in range(rows):
            append(writer, number, f"text {number % texts}")
    return {number: (number, f"text {number % texts}") for number in range(rows)}


def test_any_flipped_byte_of_a_sealed_frame_loses_its_rows_and_no_others(tmp_path: Path) -> None:
    log = tmp_path / "log"
    expected = write(log, 40)
    file, start, length = frame_offsets(log)[12]
    assert file == segments(log)[0]
    for offset in range(start, start + length):
        damaged = tmp_path / "damaged"
        shutil.copytree(log, damaged)
        flip(damaged / file.name, offset)
        found: list[Damage] = []
        rows, gaps = read_all(LogReader(damaged, on_damage=found.append), "n", "s")
        assert rows == {position: row for position, row in expected.items() if position != 12}
        assert [(gap.start, gap.stop, gap.cause) for gap in gaps] == [(12, 13, GapCause.DAMAGE)]
        (one,) = found
        assert (one.file, one.offset, one.nbytes) == (damaged / file.name, start, length)
        shutil.rmtree(damaged)


def test_a_cursor_starts_before_inside_and_behind_damage(tmp_path: Path) -> None:
    write(tmp_path, 40)
    offsets = frame_offsets(tmp_path)
    for position in (12, 13):
        flip(offsets[position][0], offsets[position][1] + 9)
    reader = LogReader(tmp_path)
    for start, first in ((11, 11), (12, 14), (13, 14), (14, 14)):
        cursor = reader.cursor(start)
        if start in (12, 13):
            with pytest.raises(GapError, match=f"rows {start} to 13 are damaged"):
                cursor.take(1)
        step = cursor.next()
        assert step is not None
        assert step[0].first_position == first
    cursor = reader.cursor(0)
    cursor.seek_arrival(1000 + 13)
    assert cursor.next_arrival is not None
    with pytest.raises(GapError):
        cursor.take(1)
    assert cursor.position == 14
    assert cursor.max_time == 1  # us: the arrival of the row before it


def test_damage_is_reported_once_however_many_cursors_meet_it(tmp_path: Path) -> None:
    write(tmp_path, 40)
    file, offset, _ = frame_offsets(tmp_path)[3]
    flip(file, offset + 50)
    found: list[Damage] = []
    reader = LogReader(tmp_path, on_damage=found.append)
    for _ in range(3):
        cursor = reader.cursor(0)
        shared = [reader.shared.take(cursor, 100).rows]
        with pytest.raises(GapError):
            reader.shared.take(cursor, 100)
        while batch := reader.shared.take(cursor, 100).rows:
            shared.append(batch)
        assert sum(shared) == 39
    assert len(found) == 1


def test_what_was_verified_is_remembered_until_the_file_changes(tmp_path: Path) -> None:
    write(tmp_path, 40)
    file = segments(tmp_path)[0]
    os.utime(file, ns=(10**18, 10**18))  # not modified lately
    known = checked_file(file.stat())
    read_all(LogReader(tmp_path), "n")
    assert checked_file(file.stat()) is known
    assert known.until == file.stat().st_size
    flip(file, 600)
    assert checked_file(file.stat()) is not known
    assert read_all(LogReader(tmp_path), "n")[1]


def test_texts_of_a_damaged_frame_are_kept_for_the_frames_behind_it(tmp_path: Path) -> None:
    expected = write(tmp_path, 40, texts=30)
    file, offset, _ = frame_offsets(tmp_path)[2]
    flip(file, offset + 115)  # in the number: the first text is behind it
    rows, gaps = read_all(LogReader(tmp_path), "n", "s")
    assert rows == {position: row for position, row in expected.items() if position != 2}
    assert len(gaps) == 1


def test_frames_whose_texts_were_lost_are_gaps_and_all_others_have_the_right_texts(tmp_path: Path) -> None:
    with LogWriter(tmp_path, LogDescription(SCHEMA)) as writer:
        texts = ["a", "b", "lost", "b", "lost", "c", "a", "lost", "c"]
        for number, text in enumerate(texts):
            append(writer, number, text)
    file, offset, length = frame_offsets(tmp_path)[2]
    flip(file, offset + length - 8)  # the text itself, which is at the end of the frame
    rows, gaps = read_all(LogReader(tmp_path), "n", "s")
    assert rows == {n: (n, text) for n, text in enumerate(texts) if text != "lost"}
    assert [(gap.start, gap.stop) for gap in gaps] == [(2, 3), (4, 5), (7, 8)]
    with LogWriter(tmp_path) as writer:
        append(writer, 9, "lost")
    assert read_all(LogReader(tmp_path), "n", "s")[0][9] == (9, "lost")


@pytest.mark.parametrize("place", [0, 5, 20, 112, 118])
def test_damage_in_the_last_segment_loses_one_frame_of_six_hundred(tmp_path: Path, place: int) -> None:
    expected = write(tmp_path, 600, options=LogOptions())
    file, offset, length = frame_offsets(tmp_path)[50]
    flip(file, offset + place)
    with LogWriter(tmp_path) as writer:
        assert (writer.end, writer.last_sequence(1), writer.cut_bytes) == (600, 600, 0)
        assert [(one.offset, one.nbytes, one.start, one.stop) for one in writer.damage] == [
            (offset, length, 50, 51)
        ]
        append(writer, 600, "text 0")
    rows, gaps = read_all(LogReader(tmp_path), "n", "s")
    assert rows == {**{p: row for p, row in expected.items() if p != 50}, 600: (600, "text 0")}
    assert [(gap.start, gap.stop) for gap in gaps] == [(50, 51)]
    with LogWriter(tmp_path) as writer:
        assert (writer.end, writer.damage) == (601, [])  # it is in a sealed segment now


def test_a_damaged_committed_length_loses_nothing(tmp_path: Path) -> None:
    expected = write(tmp_path, 100, options=LogOptions())
    offsets = frame_offsets(tmp_path)
    for committed in (offsets[60][1], offsets[60][1] + 24, 1 << 40):
        damaged = tmp_path / "damaged"
        damaged.mkdir()
        shutil.copy(tmp_path / "log.json", damaged)
        with (
            segments(tmp_path)[0].open("rb") as source,
            (damaged / segments(tmp_path)[0].name).open("wb") as copy,
        ):
            copy.write(source.read(1 << 20))
            copy.seek(6 * 8)
            copy.write(committed.to_bytes(8, "little"))
        with LogWriter(damaged) as writer:
            assert writer.end == 100
        assert read_all(LogReader(damaged), "n", "s") == (expected, [])
        shutil.rmtree(damaged)


def test_a_damaged_snapshot_is_replaced_by_the_segments_before(tmp_path: Path) -> None:
    expected = write(tmp_path, 100)
    *before, last = segments(tmp_path)
    assert len(before) > 2
    flip(last, 128 + 60)
    flip(before[-1], 128 + 60)
    with LogWriter(tmp_path, options=SMALL) as writer:
        assert (writer.end, writer.last_sequence(1)) == (100, 100)
        assert [one.rows for one in writer.damage] == [0]
    assert read_all(LogReader(tmp_path), "n", "s") == (expected, [])


def test_missing_and_shortened_segments_are_gaps_by_damage(tmp_path: Path) -> None:
    expected = write(tmp_path, 100)
    first, second, third, fourth = segments(tmp_path)[:4]
    ends = [int(file.name.split("-")[0]) for file in (second, third, fourth)]
    second.unlink()
    os.truncate(first, first.stat().st_size - 200)
    with LogWriter(tmp_path, options=SMALL) as writer:
        assert [(one.file, one.start, one.stop) for one in writer.damage] == [(first, ends[0], ends[1])]
    rows, gaps = read_all(LogReader(tmp_path), "n", "s")
    assert all(gap.cause is GapCause.DAMAGE for gap in gaps)
    lost = {position for gap in gaps for position in range(gap.start, gap.stop)}
    assert lost == set(range(ends[0] - 2, ends[1]))
    assert rows == {position: row for position, row in expected.items() if position not in lost}


@pytest.mark.parametrize("place", [0, 10, 20, 60])
def test_the_watermark_at_the_end_is_known_behind_damage(tmp_path: Path, place: int) -> None:
    write(tmp_path, 30, options=LogOptions())
    expected = LogReader(tmp_path).watermark
    offsets = frame_offsets(tmp_path)
    for position in (5, 6, 20):
        flip(offsets[position][0], offsets[position][1] + place)
    reader = LogReader(tmp_path)
    assert reader.watermark == expected
    assert [(gap.start, gap.stop) for gap in read_all(reader, "n")[1]] == [(5, 7), (20, 21)]
    assert reader.watermark == expected


def test_a_closed_reader_has_no_open_files_even_while_its_cursors_are_referenced(tmp_path: Path) -> None:
    write(tmp_path, 40)

    def open_files() -> list[str]:
        names = []
        for link in Path("/proc/self/fd").iterdir():
            with suppress(OSError):  # other threads of the process open and close files, too
                names.append(os.readlink(link))
        return [name for name in names if str(tmp_path) in name]

    reader = LogReader(tmp_path)
    cursor = reader.cursor(0)
    assert len(cursor.take(5)) == 5
    assert open_files()
    reader.close()
    assert not open_files()
    assert cursor.position == 5


def test_a_new_frame_is_trusted_when_it_is_read_first_and_verified_when_it_is_read_again(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    with LogWriter(log, LogDescription(SCHEMA)) as writer:
        reader = LogReader(log, cache_bytes=1)
        first = reader.cursor()
        for number in range(3):
            columns = {
                "n": Column.from_list(FieldType.INT, [number]),
                "s": Column.from_list(FieldType.STRING, ["a"]),
            }
            writer.append(columns, 1, time.time_ns())
        assert len(first.take(10)) == 3
        again, _, _ = reader.cursor(0).take(10)[1]
        assert again.segment.verified > again.byte_offset, "read again, so verified"
        writer.append(columns, 1, time.time_ns())
        frame, _, _ = first.take(10)[0]
        assert frame.segment.verified <= frame.byte_offset, "new, so not verified yet"
