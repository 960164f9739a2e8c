"""The writer: exclusive, monotonic arrival times, atomic appends, bounded memory."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_server.columns.column import Column
from mavstream_server.columns.dictionary import Dictionary
from mavstream_server.log import (
    FrameKind,
    LogBusyError,
    LogClosedError,
    LogCompleteError,
    LogDescription,
    LogMismatchError,
    LogMissingError,
    LogOptions,
    LogReader,
    LogWriter,
    NewFrame,
    Sync,
    UnfitRowsError,
)

NUMBERS = LogDescription(Schema((Field("n", FieldType.INT),)))
TEXTS = LogDescription(Schema((Field("s", FieldType.STRING),)))


def numbers(*values: int) -> dict[str, Column]:
    return {"n": Column(np.array(values, dtype=np.int64))}


def texts(*values: str) -> dict[str, Column]:
    return {"s": Column.from_list(FieldType.STRING, values)}


def all_rows(path: Path, name: str, type_: FieldType) -> list[object]:
    cursor = LogReader(path).cursor(0)
    rows: list[object] = []
    while (step := cursor.next()) is not None:
        if step[0].rows:
            rows += step[0].column(name).to_list(type_)
    return rows


def test_a_second_writer_is_refused_with_the_process_of_the_first(tmp_path: Path) -> None:
    with LogWriter(tmp_path, NUMBERS), pytest.raises(LogBusyError, match=r"process \d+ is writing this log"):
        LogWriter(tmp_path)
    LogWriter(tmp_path).close()


def test_a_log_is_not_opened_with_another_description(tmp_path: Path) -> None:
    with pytest.raises(LogMissingError, match="no log here"):
        LogWriter(tmp_path / "log")
    with pytest.raises(LogMissingError, match=r"log\.json"):
        LogReader(tmp_path)
    LogWriter(tmp_path, NUMBERS).close()
    with pytest.raises(LogMismatchError, match="use another directory"):
        LogWriter(tmp_path, TEXTS)


@pytest.mark.parametrize(
    ("description", "match"),
    [
        (LogDescription(NUMBERS.schema, "n"), "must be a timestamp field without nulls, got int"),
        (LogDescription(NUMBERS.schema, "m"), "no such field"),
        (LogDescription(NUMBERS.schema, None, 5), "lateness requires an event time"),
        (LogDescription(Schema(NUMBERS.schema.fields * 2)), "must be distinct"),
    ],
)
def test_an_inconsistent_description_is_refused(
    tmp_path: Path, description: LogDescription, match: str
) -> None:
    with pytest.raises(LogMismatchError, match=match):
        LogWriter(tmp_path, description)


def test_positions_count_rows_and_arrival_never_decreases(tmp_path: Path) -> None:
    with LogWriter(tmp_path, NUMBERS) as writer:
        assert writer.append(numbers(1, 2, 3), 3, 1_000) == 0
        assert writer.append(numbers(4), 1, 500) == 3
        assert (writer.end, writer.last_arrival) == (4, 1_000)
    cursor = LogReader(tmp_path).cursor(3)
    step = cursor.next()
    assert step is not None
    assert step[0].arrival == 1_000


@pytest.mark.parametrize(
    ("frame", "match"),
    [
        (NewFrame({}, 1), "expected the columns n"),
        (NewFrame(numbers(1, 2), 1), "must have 1 rows, got 2"),
        (NewFrame({"n": Column(np.zeros(1))}, 1), "must be int64 for int, got float64"),
        (NewFrame({"n": Column(np.zeros(2, np.int64), np.array([True, False]))}, 2), "got null in row 1"),
    ],
)
def test_a_frame_with_invalid_columns_is_refused_as_a_whole(
    tmp_path: Path, frame: NewFrame, match: str
) -> None:
    with LogWriter(tmp_path, NUMBERS) as writer:
        with pytest.raises(UnfitRowsError, match=match):
            writer.append_many([NewFrame(numbers(1), 1), frame], 0)
        assert writer.append(numbers(7), 1, 0) == 0
    assert all_rows(tmp_path, "n", FieldType.INT) == [7]


def test_texts_of_a_refused_frame_are_written_with_the_next(tmp_path: Path) -> None:
    wild = {"s": Column(np.array([5], dtype=np.int32), None, Dictionary(["x"]))}
    with LogWriter(tmp_path, TEXTS) as writer:
        with pytest.raises(UnfitRowsError, match="beyond its dictionary"):
            writer.append_many([NewFrame(texts("a"), 1), NewFrame(wild, 1)], 0)
        writer.append(texts("b", "a"), 2, 0)
    assert all_rows(tmp_path, "s", FieldType.STRING) == ["b", "a"]


def test_frames_of_one_append_become_visible_together(tmp_path: Path) -> None:
    with LogWriter(tmp_path, NUMBERS, LogOptions(segment_bytes=4096)) as writer:
        reader = LogReader(tmp_path)
        cursor = reader.cursor(0)
        for round_ in range(30):
            assert cursor.next() is None
            frames = [NewFrame(numbers(*range(20)), 20, 1, 3 * round_ + i) for i in range(3)]
            assert writer.append_many(frames, round_) == reader.end - 60
            segments = set()
            for _ in range(3):
                step = cursor.next()
                assert step is not None
                segments.add(step[0].segment.info.serial)
            assert len(segments) == 1
        assert len(writer.segments) > 3
        assert writer.last_sequence(1) == 89


def test_a_frame_larger_than_a_segment_gets_one_of_its_own_size(tmp_path: Path) -> None:
    words = [f"word {n}" for n in range(3000)]
    with LogWriter(tmp_path, TEXTS, LogOptions(segment_bytes=4096)) as writer:
        writer.append(texts("small"), 1, 0)
        writer.append(texts(*words), 3000, 1)
        # All its texts are known to this segment; in the next one they are new and need more room.
        writer.append(texts(*words), 3000, 2)
        writer.append(texts("small"), 1, 3)
    assert all_rows(tmp_path, "s", FieldType.STRING) == ["small", *words, *words, "small"]


def test_ever_new_strings_end_segments_and_do_not_grow_memory(tmp_path: Path) -> None:
    options = LogOptions(segment_texts=500, segment_text_bytes=1 << 20)
    with LogWriter(tmp_path, TEXTS, options) as writer:
        reader = LogReader(tmp_path, cache_bytes=1 << 20)
        cursor = reader.cursor(0)
        for start in range(0, 20_000, 100):
            writer.append(texts(*(f"new {n}" for n in range(start, start + 100))), 100, start)
            step = cursor.next()
            assert step is not None
            dictionary = step[0].column("s").dictionary
            assert dictionary is not None
            assert len(dictionary) <= 600
            assert step[0].column("s").to_list(FieldType.STRING)[0] == f"new {start}"
            del dictionary, step
        assert len(writer.segments) > 30
        assert reader.mapped < 8
        gc.collect()
        held = sum(len(d) for d in gc.get_objects() if isinstance(d, Dictionary) and _ours(d))
        assert held < 8 * 600


def _ours(dictionary: Dictionary) -> bool:
    return any(value.startswith("new ") for value in dictionary.values[:1])


def test_long_texts_end_a_segment(tmp_path: Path) -> None:
    with LogWriter(tmp_path, TEXTS, LogOptions(segment_text_bytes=1000)) as writer:
        for n in range(10):
            writer.append(texts(f"{n}" * 600), 1, n)
        assert len(writer.segments) == 5


def test_a_dictionary_that_grows_between_appends_is_looked_up_once_per_text(tmp_path: Path) -> None:
    shared = Dictionary(["a", "b"])
    with LogWriter(tmp_path, TEXTS, LogOptions(segment_texts=3)) as writer:
        writer.append({"s": Column(np.array([1, 0, 1], dtype=np.int32), None, shared)}, 3, 0)
        shared.add("c")
        shared.add("d")
        writer.append({"s": Column(np.array([3, 1], dtype=np.int32), None, shared)}, 2, 1)
        writer.append({"s": Column(np.array([2], dtype=np.int32), None, shared)}, 1, 2)
        writer.append({"s": Column(np.array([2, 0, 3], dtype=np.int32), None, shared)}, 3, 3)
        assert len(writer.segments) == 2
    assert all_rows(tmp_path, "s", FieldType.STRING) == ["b", "a", "b", "d", "b", "c", "c", "a", "d"]


def test_a_huge_source_dictionary_gives_only_the_texts_in_use(tmp_path: Path) -> None:
    huge = Dictionary(f"text {n}" for n in range(20_000))
    with LogWriter(tmp_path, TEXTS) as writer:
        writer.append({"s": Column(np.array([19_999, 3], dtype=np.int32), None, huge)}, 2, 0)
        assert writer.nbytes < 1000
    assert all_rows(tmp_path, "s", FieldType.STRING) == ["text 19999", "text 3"]


@pytest.mark.parametrize("sync", list(Sync))
def test_every_sync_mode_writes_the_same_rows(tmp_path: Path, sync: Sync) -> None:
    with LogWriter(tmp_path, NUMBERS, LogOptions(segment_bytes=4096, sync=sync)) as writer:
        for n in range(60):
            writer.append(numbers(n), 1, n)
        writer.flush()
    assert all_rows(tmp_path, "n", FieldType.INT) == list(range(60))


def test_a_closed_writer_raises_an_error(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, NUMBERS)
    writer.close()
    writer.close()
    with pytest.raises(LogClosedError, match="open the log again"):
        writer.append(numbers(1), 1, 0)


def test_an_invalid_mark_is_refused(tmp_path: Path) -> None:
    with LogWriter(tmp_path, NUMBERS) as writer:
        with pytest.raises(UnfitRowsError, match="DATA"):
            writer.mark(FrameKind.DATA, 0)
        with pytest.raises(UnfitRowsError, match="WATERMARK with watermark None"):
            writer.mark(FrameKind.WATERMARK, 0)


def test_marks_alone_can_fill_segments(tmp_path: Path) -> None:
    with LogWriter(tmp_path, NUMBERS, LogOptions(segment_bytes=4096)) as writer:
        cursor = LogReader(tmp_path).cursor(0)
        for n in range(200):
            writer.mark(FrameKind.CLOCK, n * 1000)
        writer.append(numbers(5), 1, 200_000)
        assert len(writer.segments) > 4
    seen = []
    while (step := cursor.next()) is not None:
        seen.append(step[0].arrival)
    assert seen == [n * 1000 for n in range(201)]


def test_nothing_can_be_appended_after_completion(tmp_path: Path) -> None:
    schema = Schema((Field("n", FieldType.INT),))
    with LogWriter(tmp_path, LogDescription(schema)) as writer:
        writer.append({"n": Column(np.arange(2))}, 2, 0)
        writer.mark(FrameKind.COMPLETE, 1)
        with pytest.raises(LogCompleteError, match="the log was completed"):
            writer.append({"n": Column(np.arange(2))}, 2, 2)
    with LogWriter(tmp_path) as again, pytest.raises(LogCompleteError):
        again.append({"n": Column(np.arange(2))}, 2, 3)


def test_one_frame_is_written_as_several_are(tmp_path: Path) -> None:
    schema = Schema(
        (Field("ts", FieldType.TIMESTAMP), Field("s", FieldType.STRING), Field("b", FieldType.BOOL, True))
    )
    description, options = LogDescription(schema, "ts", 5), LogOptions(segment_bytes=16_384)
    one, many = tmp_path / "one", tmp_path / "many"
    with LogWriter(one, description, options) as ones, LogWriter(many, description, options) as manys:
        for number in range(300):
            size = (1, 7, 40)[number % 3]
            values = [f"text {number % 50} {row}" for row in range(size)]
            flags = [None if number % 4 == 1 and row % 5 == 0 else row % 2 == 0 for row in range(size)]
            columns = {
                "ts": Column(np.arange(size, dtype=np.int64) * 3 + number),
                "s": Column.from_list(FieldType.STRING, values),
                "b": Column.from_list(FieldType.BOOL, flags),
            }
            first = ones.append(columns, size, 1000 + number, producer=number % 2, sequence=number)
            frame = NewFrame(columns, size, number % 2, number)
            assert manys.append_many([frame], 1000 + number) == first
    files = sorted(path.name for path in one.glob("*.segment"))
    assert len(files) > 2
    assert files == sorted(path.name for path in many.glob("*.segment"))
    for name in files:
        assert (one / name).read_bytes() == (many / name).read_bytes()


def test_texts_of_a_refused_frame_are_written_with_the_next_one(tmp_path: Path) -> None:
    schema = Schema((Field("s", FieldType.STRING), Field("n", FieldType.INT)))
    with LogWriter(tmp_path, LogDescription(schema)) as writer:
        with pytest.raises(UnfitRowsError, match="must be int64"):
            writer.append(texts("new") | {"n": Column(np.array([0.5]))}, 1, 1)
        beyond = {"s": Column(np.array([3], dtype=np.int32), None, Dictionary(["only"])), **numbers(1)}
        with pytest.raises(UnfitRowsError, match="codes beyond its dictionary"):
            writer.append(beyond, 1, 1)
        writer.append(texts("new", "newer") | numbers(1, 2), 2, 2)
    assert all_rows(tmp_path, "s", FieldType.STRING) == ["new", "newer"]
