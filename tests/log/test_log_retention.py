"""Retention removes whole segments that no cursor needs; a cursor that missed rows gets a GapError."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_server.columns.column import Column
from mavstream_server.log import (
    FrameKind,
    GapError,
    LogDescription,
    LogOptions,
    LogReader,
    LogWriter,
    Removed,
    Retention,
)

EVENTS = LogDescription(Schema((Field("t", FieldType.TIMESTAMP),)), "t", 5)
OPTIONS = LogOptions(segment_bytes=4096)


def fill(path: Path, frames: int = 200, options: LogOptions = OPTIONS) -> LogWriter:
    """Frames of ten rows; row n has the time n and arrived with its frame at n ns."""
    writer = LogWriter(path, EVENTS, options)
    for start in range(0, 10 * frames, 10):
        writer.append({"t": Column(np.arange(start, start + 10))}, 10, start, producer=1, sequence=start)
    return writer


def test_segments_that_cursors_need_are_kept(tmp_path: Path) -> None:
    with fill(tmp_path) as writer:
        before = writer.nbytes
        removed = Retention(max_age_ns=0).apply(writer, 1000, 10**9)
        assert removed.segments > 0
        assert removed.start == 0
        assert 0 < removed.stop < 1000
        assert (writer.begin, writer.nbytes) == (removed.stop, before - removed.nbytes)
        assert LogReader(tmp_path).begin == removed.stop
        assert Retention(max_age_ns=0).apply(writer, 1000, 10**9).segments == 0


def test_a_segment_with_marks_that_a_cursor_may_not_have_read_is_kept(tmp_path: Path) -> None:
    with fill(tmp_path) as writer:
        second = writer.segments[1].position
        assert Retention(max_age_ns=0).apply(writer, second, 10**9).segments == 0
        assert Retention(max_age_ns=0).apply(writer, second + 1, 10**9).segments == 1


def test_without_limits_every_segment_is_kept(tmp_path: Path) -> None:
    with fill(tmp_path) as writer:
        assert Retention().apply(writer, None, 10**18, force=True) == Removed(0, 0, 0, 0, held=False)


def test_segments_below_the_maximum_age_are_kept(tmp_path: Path) -> None:
    with fill(tmp_path) as writer:
        Retention(max_age_ns=500).apply(writer, None, 2000)
        assert 1300 < writer.begin <= 1500  # the row at `begin` minus one arrived before 1500


def test_segments_up_to_the_maximum_bytes_are_kept(tmp_path: Path) -> None:
    with fill(tmp_path) as writer:
        Retention(max_bytes=10_000).apply(writer, None, 0)
        assert 10_000 <= writer.nbytes < 15_000
        assert sum(file.stat().st_blocks for file in tmp_path.glob("*.segment")) * 512 < 40_000


def test_the_segment_being_written_is_never_removed(tmp_path: Path) -> None:
    with fill(tmp_path) as writer:
        Retention(max_age_ns=0, max_bytes=0).apply(writer, None, 10**18, force=True)
        assert len(writer.segments) == 1
        assert writer.append({"t": Column(np.array([5]))}, 1, 0) == 2000


def test_a_log_reports_that_it_is_over_its_quota_until_segments_are_removed(tmp_path: Path) -> None:
    options = LogOptions(segment_bytes=4096, quota=20_000)
    with fill(tmp_path, 50, options) as writer:
        assert not writer.over_quota
    with LogWriter(tmp_path, options=options) as writer:
        while not writer.over_quota:
            writer.append({"t": Column(np.arange(10))}, 10, 0)
        assert 20_000 < writer.nbytes < 21_000
        Retention(max_bytes=0).apply(writer, writer.end, 0)
        assert not writer.over_quota


def test_a_cursor_raises_one_gap_error_for_the_rows_it_missed(tmp_path: Path) -> None:
    with fill(tmp_path) as writer:
        reader = LogReader(tmp_path)
        lagging, waiting = reader.cursor(0), reader.cursor(3)
        assert lagging.next() is not None
        segment_end = writer.segments[1].position
        Retention(max_bytes=10_000).apply(writer, 0, 0, force=True)
        begin = writer.begin
        with pytest.raises(GapError, match=f"rows 3 to {begin - 1} were removed") as caught:
            waiting.next()
        gap = caught.value
        assert (gap.start, gap.stop, gap.watermark, gap.max_time) == (3, begin, begin - 6, begin - 1)
        assert waiting.position == begin
        step = waiting.next()
        assert step is not None
        assert step[0].first_position == begin
        # The one inside a segment reads it to its end, then gets a gap for the rest.
        while lagging.position < segment_end:
            assert lagging.next() is not None
        with pytest.raises(GapError, match=f"rows {segment_end} to {begin - 1}"):
            lagging.next()
        assert lagging.next() == step


def test_a_train_ends_before_a_gap(tmp_path: Path) -> None:
    with fill(tmp_path) as writer:
        cursor = LogReader(tmp_path).cursor(0)
        assert len(cursor.take(10)) == 1
        segment_end = writer.segments[1].position
        Retention(max_bytes=0).apply(writer, 0, 0, force=True)
        assert cursor.take(10_000)[-1][0].stop == segment_end
        with pytest.raises(GapError):
            cursor.take(10_000)
        assert cursor.take(10_000)[-1][0].stop == 2000


def test_the_backlog_of_a_cursor_ahead_of_a_gap_counts_the_remaining_rows(tmp_path: Path) -> None:
    with fill(tmp_path) as writer:
        cursor = LogReader(tmp_path).cursor(0)
        Retention(max_bytes=0).apply(writer, 0, 0, force=True)
        assert cursor.backlog.rows == 2000 - writer.begin
        with pytest.raises(GapError):
            cursor.next()


def test_a_reader_closes_removed_segments(tmp_path: Path) -> None:
    with fill(tmp_path) as writer:
        reader = LogReader(tmp_path)
        cursor = reader.cursor(0)
        cursor.take(2000)
        mapped = reader.mapped
        Retention(max_bytes=0).apply(writer, 2000, 0)
        reader.release_removed()
        gc.collect()
        assert reader.mapped == 1 < mapped


def test_producers_are_kept_while_they_are_live_or_the_log_has_rows_of_them(tmp_path: Path) -> None:
    with fill(tmp_path) as writer:
        for producer in (2, 3):
            writer.append({"t": Column(np.array([3000]))}, 1, 2000, producer=producer, sequence=5)
        writer.mark(FrameKind.END, 2000, producer=2)
        for start in range(3000, 5000, 10):
            writer.append({"t": Column(np.arange(start, start + 10))}, 10, start, producer=1, sequence=start)
        Retention(max_bytes=0).apply(writer, None, 0)
        for start in range(5000, 6000, 10):
            writer.append({"t": Column(np.arange(start, start + 10))}, 10, start, producer=1, sequence=start)
        assert [writer.last_sequence(producer) for producer in (1, 2, 3)] == [5990, 0, 5]
    with LogWriter(tmp_path) as writer:
        assert [writer.last_sequence(producer) for producer in (1, 2, 3)] == [5990, 0, 5]
        assert writer.watermark == 2995  # producer 3 sent no more rows, is not idle and has not ended


def test_rows_beyond_the_map_of_a_removed_segment_are_a_gap(tmp_path: Path) -> None:
    with fill(tmp_path, 1):
        reader = LogReader(tmp_path)
        cursors = [reader.cursor(0), reader.cursor(0)]
        for cursor in cursors:
            assert cursor.next() is not None
            assert cursor.next() is None
    # Opened with more room, the segment grows beyond what the cursors have mapped.
    with LogWriter(tmp_path, EVENTS, LogOptions(segment_bytes=1 << 16)) as writer:
        while len(writer.segments) < 3:
            start = writer.end
            writer.append({"t": Column(np.arange(start, start + 10))}, 10, start, producer=1, sequence=start)
        Retention(max_bytes=1).apply(writer, None, 0, force=True)
        for cursor in cursors:
            with pytest.raises(GapError) as missed:
                cursor.next()
            assert (missed.value.start, missed.value.stop) == (10, writer.begin)
            read = 0
            while (step := cursor.next()) is not None:
                read += step[0].rows
            assert read == writer.end - writer.begin
