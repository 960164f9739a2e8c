"""Damaged headers of segments: rebuilt from name, frames and neighbours, so that no row is lost with them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.damaged_files import flip, frame_offsets, read_all, segments

from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_server.columns.column import Column
from mavstream_server.core.storage.damage import Damage
from mavstream_server.log import (
    GapCause,
    LogCorruptError,
    LogDescription,
    LogOptions,
    LogReader,
    LogWriter,
)
from mavstream_server.log.format.segment import (
    HEADER_BYTES,
    INFO_CRC,
    STATE_CRC,
    VERSION,
    encode_words,
    info_checksum,
    read_words,
)

SMALL = LogOptions(segment_bytes=4096)
SCHEMA = Schema((Field("n", FieldType.INT), Field("s", FieldType.STRING)))
ROWS = {n: (n, f"text {n % 5}") for n in range(100)}


def append(writer: LogWriter, number: int) -> None:
    columns = {
        "n": Column.from_list(FieldType.INT, [number]),
        "s": Column.from_list(FieldType.STRING, [f"text {number % 5}"]),
    }
    writer.append(columns, 1, 1000 + number, producer=1, sequence=number + 1)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of 100 frames of one row, in four segments."""
    with LogWriter(tmp_path / "log", LogDescription(SCHEMA), SMALL) as writer:
        for number in ROWS:
            append(writer, number)
    assert len(segments(tmp_path / "log")) == 4
    return tmp_path / "log"


def without_checksums(file: Path) -> None:
    """Make a header what earlier releases wrote."""
    with file.open("r+b") as stream:
        stream.seek(8 * INFO_CRC)
        stream.write(bytes(16))


@pytest.mark.parametrize("index", [0, 1, -1])
def test_any_flipped_byte_of_a_header_loses_nothing(log: Path, tmp_path: Path, index: int) -> None:
    size = sum(read_words(segments(log)[-1])[5:7])
    for offset in range(HEADER_BYTES):
        damaged = tmp_path / "damaged"
        shutil.copytree(log, damaged)
        file = segments(damaged)[index]
        flip(file, offset)
        with LogWriter(damaged, options=SMALL) as writer:
            assert [(one.file, one.offset, one.rows) for one in writer.damage] == [(file, 0, 0)]
            assert (writer.end, writer.last_sequence(1), writer.begin) == (100, 100, 0)
            assert size <= writer.nbytes < size + 1000
            append(writer, 100)
        found: list[Damage] = []
        reader = LogReader(damaged, on_damage=found.append)
        assert read_all(reader, "n", "s") == ({**ROWS, 100: (100, "text 0")}, [])
        # The last one was written again, and a new segment follows.
        assert [one.file for one in found] == ([] if index == -1 else [file])
        assert len(segments(damaged)) == (5 if index == -1 else 4)
        shutil.rmtree(damaged)


@pytest.mark.parametrize("index", [0, 1, -1])
def test_a_reader_alone_serves_all_rows_behind_a_damaged_header(log: Path, index: int) -> None:
    arrival = LogReader(log).cursor(0)
    arrival.seek_arrival(1060)
    with segments(log)[index].open("r+b") as stream:
        stream.write(b"\xa5" * HEADER_BYTES)
    found: list[Damage] = []
    reader = LogReader(log, on_damage=found.append)
    assert read_all(reader, "n", "s") == (ROWS, [])
    assert reader.end == 100
    cursor = reader.cursor(0)
    cursor.seek_arrival(1060)
    assert cursor.position == arrival.position == 60
    again = LogReader(log, on_damage=found.append)
    read_all(again, "n")
    assert {one.file for one in found} == {segments(log)[index]}


@pytest.mark.parametrize("word", range(9))
def test_headers_without_checksums_are_rebuilt_if_they_are_impossible(log: Path, word: int) -> None:
    for file in segments(log):
        without_checksums(file)
    assert read_all(LogReader(log), "n", "s") == (ROWS, [])
    flip(segments(log)[1], 8 * word)
    with LogWriter(log, options=SMALL) as writer:
        assert writer.end == 100
    assert read_all(LogReader(log), "n", "s") == (ROWS, [])


def test_adjacent_damaged_headers_are_rebuilt(log: Path) -> None:
    expected = [tuple(read_words(file))[:9] for file in segments(log)]
    for file in segments(log)[:3]:
        with file.open("r+b") as stream:
            stream.write(b"\xa5" * HEADER_BYTES)
    with LogWriter(log, options=SMALL) as writer:
        assert [tuple(info) for info in writer.segments] == [words[2:6] for words in expected]
        assert len(writer.damage) == 3
    assert read_all(LogReader(log), "n", "s") == (ROWS, [])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:60])


def zeros(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def foreign(file: Path) -> None:
    file.write_bytes(b"garbage!" * (file.stat().st_size // 8))


@pytest.mark.parametrize("damage", [empty, short, zeros, foreign])
@pytest.mark.parametrize("index", [0, 1])
def test_a_lost_segment_is_a_gap_and_all_others_are_served(
    log: Path, index: int, damage: Callable[[Path], None]
) -> None:
    file = segments(log)[index]
    start, stop = (int(each.name.split("-")[0]) for each in segments(log)[index : index + 2])
    damage(file)
    with LogWriter(log, options=SMALL) as writer:
        assert writer.damage[0].file == file
        append(writer, 100)
    found: list[Damage] = []
    rows, gaps = read_all(LogReader(log, on_damage=found.append), "n")
    assert list(rows) == [n for n in range(101) if not start <= n < stop]
    assert [(gap.start, gap.stop, gap.cause) for gap in gaps] == [(start, stop, GapCause.DAMAGE)]
    assert sum(one.rows for one in found) == stop - start
    inside = LogReader(log).cursor(start + 3)
    with pytest.raises(Exception, match=f"rows {start + 3} to {stop - 1} are damaged"):
        inside.take(1)


@pytest.mark.parametrize("damage", [short, foreign])
def test_positions_of_a_lost_last_segment_are_not_used_again(
    log: Path, damage: Callable[[Path], None]
) -> None:
    first = int(segments(log)[-1].name.split("-")[0])
    if damage is foreign:
        damage(segments(log)[-1])
    else:  # the header and the last frame
        file, offset, _ = frame_offsets(log)[99]
        flip(file, 3, offset + 20)
        first = 99
    with LogWriter(log, options=SMALL) as writer:
        assert writer.end >= 100
        assert writer.begin == 0
        append(writer, 100)
        end = writer.end
    rows, gaps = read_all(LogReader(log), "n")
    assert list(rows) == [*range(first), end - 1]
    assert [(gap.start, gap.stop) for gap in gaps] == [(first, end - 1)]


def test_a_zeroed_header_of_the_last_segment_does_not_remove_it(log: Path) -> None:
    with segments(log)[-1].open("r+b") as stream:
        stream.write(bytes(HEADER_BYTES))
    with LogWriter(log, options=SMALL) as writer:
        assert (writer.end, writer.dropped) == (100, [])
    assert read_all(LogReader(log), "n", "s") == (ROWS, [])


def test_the_last_frame_is_kept_if_it_ends_with_zeros_and_the_header_is_damaged(tmp_path: Path) -> None:
    description = LogDescription(Schema((Field("n", FieldType.INT),)))
    with LogWriter(tmp_path, description) as writer:
        for value in (7, 0):
            writer.append({"n": Column.from_list(FieldType.INT, [value] * 20)}, 20, 1)
    flip(segments(tmp_path)[0], 3)
    assert LogReader(tmp_path).end == 40
    with LogWriter(tmp_path) as writer:
        assert (writer.end, writer.cut_bytes) == (40, 0)


@pytest.mark.parametrize("word", range(16))
def test_the_writer_restores_the_header_that_it_is_writing(log: Path, word: int) -> None:
    with LogWriter(log, options=SMALL) as writer:
        early = LogReader(log)
        cursor = early.cursor()
        flip(segments(log)[-1], 8 * word)
        assert cursor.take(10) == []
        late = LogReader(log)
        damage = writer.restore_header()
        assert damage is not None
        assert (damage.file, damage.offset, damage.rows) == (segments(log)[-1], 0, 0)
        assert writer.restore_header() is None
        append(writer, 100)
        assert early.grown()
        assert sum(stop - start for _, start, stop in cursor.take(10)) == 1
        assert late.end == 101
        assert read_all(late, "n", "s")[0] == {**ROWS, 100: (100, "text 0")}
    assert read_all(LogReader(log), "n", "s") == ({**ROWS, 100: (100, "text 0")}, [])


def test_a_segment_of_a_later_release_is_refused(log: Path) -> None:
    file = segments(log)[1]
    words = list(read_words(file))
    words[VERSION] = 9
    words[INFO_CRC] = info_checksum(words)
    with file.open("r+b") as stream:
        stream.write(encode_words(words))
    with pytest.raises(LogCorruptError, match=r"0002\.segment: expected segment version 2, got 9; use"):
        LogWriter(log)
    assert read_words(file)[STATE_CRC] == words[STATE_CRC]
