"""Rows of all types, nulls, texts and marks are read from a log as they were appended."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_server.columns.batch import BEGIN_OF_TIME, END_OF_TIME
from mavstream_server.columns.column import Column
from mavstream_server.log import (
    FrameKind,
    LogDescription,
    LogReader,
    LogWriter,
    gather,
    gather_arrivals,
    gather_positions,
    gather_watermarks,
)

ALL = Schema(
    tuple(
        Field(f"{type_}{'_or_null' * nullable}", type_, nullable)
        for type_ in FieldType
        for nullable in (False, True)
    )
)
INT64 = st.integers(BEGIN_OF_TIME, END_OF_TIME)
VALUES: dict[FieldType, st.SearchStrategy[Any]] = {
    FieldType.INT: INT64,
    FieldType.FLOAT: st.floats(allow_nan=False, allow_infinity=False),
    FieldType.BOOL: st.booleans(),
    FieldType.STRING: st.one_of(st.text(max_size=6), st.sampled_from(["", "é€𝄞", "\ud800", "a\0b"])),
    FieldType.TIMESTAMP: INT64,
}
ROW = st.tuples(*(st.one_of(st.none(), VALUES[f.type]) if f.nullable else VALUES[f.type] for f in ALL))
FRAMES = st.lists(st.lists(ROW, max_size=9), min_size=1, max_size=6)


def columns_of(rows: list[tuple[Any, ...]], schema: Schema = ALL) -> dict[str, Column]:
    return {
        field.name: Column.from_list(field.type, [row[index] for row in rows])
        for index, field in enumerate(schema)
    }


def rows_of(columns: Mapping[str, Column], schema: Schema = ALL) -> list[tuple[Any, ...]]:
    return list(zip(*(columns[f.name].to_list(f.type) for f in schema), strict=True))


@settings(max_examples=60, deadline=None)
@given(FRAMES, st.integers(1, 20))
@example([[(0, None, 0.0, None, False, None, "", None, t, None) for t in (4 - (1 << 63), 0)]], 1)
def test_rows_are_read_as_they_were_appended(frames: list[list[tuple[Any, ...]]], train: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "log"
        with LogWriter(path, LogDescription(ALL, "timestamp", 5)) as writer:
            for index, rows in enumerate(frames):
                writer.append(columns_of(rows), len(rows), index)
        reader = LogReader(path)
        cursor = reader.cursor(0)
        for index, rows in enumerate(frames):
            step = cursor.next()
            assert step is not None
            frame, start = step
            assert (frame.rows, frame.arrival, start, frame.kind) == (len(rows), index, 0, FrameKind.DATA)
            assert rows_of(frame.columns()) == rows
            assert [column.valid is None for column in frame.columns().values()] == [
                all(row[i] is not None for row in rows) for i in range(len(ALL))
            ]
        assert cursor.next() is None
        check_gathered(reader, frames, train)


def check_gathered(reader: LogReader, frames: list[list[tuple[Any, ...]]], train: int) -> None:
    cursor = reader.cursor(0)
    rows: list[tuple[Any, ...]] = []
    marks: list[int] = []
    while spans := cursor.take(train):
        positions = gather_positions(spans)
        assert positions.tolist() == list(range(len(rows), len(rows) + len(positions)))
        assert len(gather_arrivals(spans)) == len(positions)
        if len(positions):
            columns = gather(spans, ALL.names)
            marks += gather_watermarks(spans, columns["timestamp"].values).tolist()
            rows += rows_of(columns)
    assert rows == [row for frame in frames for row in frame]
    expected, largest, index = [], BEGIN_OF_TIME, ALL.names.index("timestamp")
    for row in rows:
        expected.append(max(largest - 5, BEGIN_OF_TIME))
        largest = max(largest, row[index])
    assert_same_rows_are_late(marks, expected, [row[index] for row in rows], lateness=5)


def assert_same_rows_are_late(marks: list[int], exact: list[int], times: list[int], lateness: int) -> None:
    """A gathered watermark may be ahead of the exact one, as long as the row itself is not behind it."""
    for mark, expected, time in zip(marks, exact, times, strict=True):
        assert expected <= mark <= max(expected, time - lateness)


def test_frames_of_equal_layout_are_read_as_one_batch(tmp_path: Path) -> None:
    schema = Schema((Field("n", FieldType.INT), Field("s", FieldType.STRING, True)))
    with LogWriter(tmp_path, LogDescription(schema)) as writer:
        for start in range(0, 300, 3):
            rows = [(n, None if n % 50 == 7 else f"t{n % 4}") for n in range(start, start + 3)]
            writer.append(columns_of(rows, schema), 3, start)
            if start == 150:
                writer.mark(FrameKind.CLOCK, start)
    cursor = LogReader(tmp_path).cursor(0)
    assert cursor.next() is not None
    spans = cursor.take(200) + cursor.take(5) + cursor.take(500)
    columns = gather(spans, schema.names)
    assert rows_of(columns, schema) == [(n, None if n % 50 == 7 else f"t{n % 4}") for n in range(3, 300)]
    assert gather_arrivals(spans).tolist() == [n - n % 3 for n in range(3, 300)]


def test_watermarks_of_a_batch_equal_those_of_its_frames(tmp_path: Path) -> None:
    schema = Schema((Field("t", FieldType.TIMESTAMP),))
    random = np.random.default_rng(3)
    with LogWriter(tmp_path, LogDescription(schema, "t", 20)) as writer:
        for index in range(200):
            some = random.integers(index * 10, index * 10 + 60, int(random.integers(1, 5)))
            writer.append({"t": Column(some)}, len(some), index, producer=int(random.integers(1, 3)))
            if index % 37 == 0:
                writer.mark(FrameKind.IDLE, index, producer=1)
    reader = LogReader(tmp_path)
    cursor = reader.cursor(0)
    each: list[int] = []
    times: list[int] = []
    while (step := cursor.next()) is not None:
        times += step[0].column("t").values.tolist()
        marks = step[0].row_watermarks()
        assert marks is not None
        assert marks is step[0].row_watermarks()
        each += marks.tolist()
    for train in (1, 7, 64, 10_000):
        cursor = reader.cursor(0)
        joined: list[int] = []
        while spans := cursor.take(train):
            if any(stop > start for _, start, stop in spans):
                joined += gather_watermarks(spans, gather(spans, ["t"])["t"].values).tolist()
        assert_same_rows_are_late(joined, each, times, lateness=20)


def test_columns_are_read_only_views(tmp_path: Path) -> None:
    schema = Schema((Field("n", FieldType.INT),))
    with LogWriter(tmp_path, LogDescription(schema)) as writer:
        writer.append({"n": Column(np.arange(4))}, 4, 0)
    step = LogReader(tmp_path).cursor(0).next()
    assert step is not None
    column = step[0].column("n")
    assert column is step[0].column("n")
    assert not column.values.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        column.values[0] = 1
    with pytest.raises(KeyError):
        step[0].column("m")


def test_frames_with_more_than_64_nullable_columns_are_read(tmp_path: Path) -> None:
    schema = Schema(tuple(Field(f"c{i}", FieldType.INT, True) for i in range(80)))
    rows = [tuple(None if i == 79 else i for i in range(80)), tuple(range(80))]
    with LogWriter(tmp_path, LogDescription(schema)) as writer:
        writer.append(columns_of(rows, schema), 2, 0)
    step = LogReader(tmp_path).cursor(0).next()
    assert step is not None
    assert rows_of(step[0].columns(), schema) == rows


def test_marks_are_read_between_the_rows(tmp_path: Path) -> None:
    schema = Schema((Field("t", FieldType.TIMESTAMP),))
    with LogWriter(tmp_path, LogDescription(schema, "t", 10)) as writer:
        writer.mark(FrameKind.JOIN, 1, producer=4)
        writer.append({"t": Column(np.array([100]))}, 1, 2, producer=4, sequence=9)
        assert writer.mark(FrameKind.END, 3, producer=4) == 1
        writer.mark(FrameKind.COMPLETE, 3)
    cursor = LogReader(tmp_path).cursor(0)
    seen = []
    while (step := cursor.next()) is not None:
        frame = step[0]
        seen.append((frame.kind, frame.rows, frame.producer, frame.sequence, frame.after, frame.max_before))
    assert seen == [
        (FrameKind.JOIN, 0, 4, 0, BEGIN_OF_TIME, BEGIN_OF_TIME),
        (FrameKind.DATA, 1, 4, 9, 90, BEGIN_OF_TIME),
        (FrameKind.END, 0, 4, 0, 101, 100),
        (FrameKind.COMPLETE, 0, 0, 0, END_OF_TIME, 100),
    ]
