"""Frames of slices of shared columns have the same rows, arrivals and watermarks as frames of columns."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_server.columns.column import Column
from mavstream_server.log import (
    LogDescription,
    LogOptions,
    LogReader,
    LogWriter,
    NewFrame,
    UnfitRowsError,
    gather,
    gather_arrivals,
    gather_watermarks,
)
from mavstream_server.log.cursor import split_at_arrival
from mavstream_server.log.format.shared_columns import RowSlice, SharedColumns
from mavstream_server.operators.queue import Queue, QueueAccount
from mavstream_server.operators.source import Needs, Source

SCHEMA = Schema(
    (
        Field("at", FieldType.TIMESTAMP),
        Field("s", FieldType.STRING),
        Field("on", FieldType.BOOL, nullable=True),
        Field("x", FieldType.FLOAT),
    )
)
ON_EVENTS = LogDescription(SCHEMA, "at", 5)
ON_ARRIVAL = LogDescription(SCHEMA)


class Sent(NamedTuple):
    """A frame of a producer, as columns and as a slice of shared columns."""

    columns: dict[str, Column]
    row_slice: RowSlice
    sequence: int


def sent_frames(packs: int, seed: int = 1) -> list[Sent]:
    """Return frames of 1 to 8 rows; some times of arrival go back."""
    random = np.random.default_rng(seed)
    frames: list[Sent] = []
    for _ in range(packs):
        size = 30
        columns = {
            "at": Column(random.integers(0, 1000, size)),
            "s": Column.from_list(FieldType.STRING, [f"text {n}" for n in random.integers(0, 40, size)]),
            "on": Column(random.random(size) < 0.5),
            "x": Column(random.random(size)),
        }
        texts = columns["s"].to_list(FieldType.STRING)
        shared = SharedColumns(
            SCHEMA, [texts if name == "s" else each.values for name, each in columns.items()], size
        )
        start = 0
        while start < size:
            count, sequence = min(int(random.integers(1, 9)), size - start), len(frames) + 1
            arrival = 1000 * sequence - int(random.integers(0, 5000))
            rows = {name: column.slice(start, start + count) for name, column in columns.items()}
            frames.append(Sent(rows, RowSlice(shared, start, count, arrival), sequence))
            start += count
    return frames


def append_alone(writer: LogWriter, frames: list[Sent]) -> None:
    for columns, row_slice, sequence in frames:
        writer.append_many([NewFrame(columns, row_slice.size, 1, sequence, row_slice.arrival)], 0)


def append_joined(writer: LogWriter, frames: list[Sent], seed: int = 2) -> None:
    random = np.random.default_rng(seed)
    begin = 0
    while begin < len(frames):
        run = frames[begin : begin + int(random.integers(1, 6))]
        slices = [each.row_slice for each in run]
        size = sum(row_slice.size for row_slice in slices)
        writer.append_many([NewFrame(slices, size, 1, run[-1].sequence, slices[0].arrival)], 0)
        begin += len(run)


@pytest.mark.parametrize(
    "options",
    [LogOptions(), LogOptions(segment_bytes=4096), LogOptions(segment_texts=20)],
    ids=["one", "bytes", "texts"],
)
def test_a_single_slice_makes_the_same_frame_as_its_rows(tmp_path: Path, options: LogOptions) -> None:
    sent = sent_frames(60)
    with (
        LogWriter(tmp_path / "slices", ON_EVENTS, options) as slices,
        LogWriter(tmp_path / "columns", ON_EVENTS, options) as columns,
    ):
        append_alone(columns, sent)
        for _, row_slice, sequence in sent:
            slices.append_many([NewFrame([row_slice], row_slice.size, 1, sequence, row_slice.arrival)], 0)
    written = [sorted((tmp_path / name).glob("*.segment")) for name in ("slices", "columns")]
    assert [file.name for file in written[0]] == [file.name for file in written[1]]
    for one, two in zip(*written, strict=True):
        assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize("description", [ON_EVENTS, ON_ARRIVAL], ids=["event_time", "arrival"])
@pytest.mark.parametrize(
    "options", [LogOptions(), LogOptions(segment_bytes=4096), LogOptions(segment_texts=20)]
)
def test_joined_frames_have_the_same_rows_arrivals_and_watermarks(
    tmp_path: Path, options: LogOptions, description: LogDescription
) -> None:
    sent = sent_frames(40)
    ends = {}
    for name, append in (("alone", append_alone), ("joined", append_joined)):
        with LogWriter(tmp_path / name, description, options) as writer:
            half = len(sent) // 2
            append(writer, sent[:half])
        # A reopened writer restores its state.
        with LogWriter(tmp_path / name, options=options) as writer:
            assert writer.last_sequence(1) == half
            append(writer, sent[half:])
            ends[name] = writer.watermark, writer.last_arrival, writer.end
    assert ends["alone"] == ends["joined"]
    alone, joined = (LogReader(tmp_path / name) for name in ("alone", "joined"))
    for most in (1, 7, 10_000):
        cursors = alone.cursor(0), joined.cursor(0)
        while alone_spans := cursors[0].take(most):
            rows = sum(stop - start for _, start, stop in alone_spans)
            spans = cursors[1].take(rows)
            assert gather_arrivals(spans).tolist() == gather_arrivals(alone_spans).tolist()
            found, expected = (gather(each, SCHEMA.names) for each in (spans, alone_spans))
            for field in SCHEMA:
                actual, wanted = (each[field.name].to_list(field.type) for each in (found, expected))
                assert actual == wanted
            if description.event_time is not None:
                times = gather(spans, ["at"])["at"].values
                late, wanted = (times < gather_watermarks(each, times) for each in (spans, alone_spans))
                assert late.tolist() == wanted.tolist()
            assert cursors[0].max_time == cursors[1].max_time
            if options == LogOptions():  # at the end of a segment a cursor does not look at the next one
                assert cursors[0].next_arrival == cursors[1].next_arrival


def test_rows_inside_of_frames_are_found_by_arrival(tmp_path: Path) -> None:
    sent = sent_frames(20)
    with LogWriter(tmp_path, ON_EVENTS, LogOptions(segment_bytes=4096)) as writer:
        append_joined(writer, sent)
    reader = LogReader(tmp_path)
    spans = reader.cursor(0).take(10_000)
    arrivals = gather_arrivals(spans)
    assert (np.diff(arrivals) >= 0).all()
    cursor = reader.cursor()
    for arrival in [*np.unique(arrivals).tolist(), int(arrivals[-1]) + 1]:
        for asked in (arrival, arrival - 1):
            row = int(np.searchsorted(arrivals, asked))
            cursor.seek_arrival(asked)
            assert cursor.position == row
            before, behind = split_at_arrival(spans, asked)
            assert sum(stop - start for _, start, stop in before) == row
            assert [*gather_arrivals(before), *gather_arrivals(behind)] == arrivals.tolist()


def test_a_damaged_frame_is_lost_with_all_its_rows_and_a_torn_one_is_cut_off(tmp_path: Path) -> None:
    sent = sent_frames(1)
    with LogWriter(tmp_path, ON_EVENTS) as writer:
        append_joined(writer, sent[:3])
        whole, before = writer.end, writer.nbytes
        slices = [each.row_slice for each in sent[3:6]]
        size = sum(row_slice.size for row_slice in slices)
        writer.append_many([NewFrame(slices, size, 1, 6, slices[0].arrival)], 0)
        end = writer.nbytes
    (segment,) = tmp_path.glob("*.segment")
    data = segment.read_bytes()
    segment.write_bytes(data[: end - 8])
    with LogWriter(tmp_path) as writer:
        assert (writer.end, writer.nbytes, writer.last_sequence(1)) == (whole, before, 3)
    # In an arrival stamp, which is at the end of a frame. The producer continues behind the frame.
    damaged = bytearray(data)
    damaged[end - 8] ^= 1
    segment.write_bytes(bytes(damaged))
    with LogWriter(tmp_path) as writer:
        assert (writer.end, writer.last_sequence(1)) == (whole + size, 6)
        assert [(found.offset, found.rows) for found in writer.damage] == [(before, size)]


def test_invalid_slices_are_refused(tmp_path: Path) -> None:
    shared = sent_frames(1)[0].row_slice.columns
    with LogWriter(tmp_path / "log", ON_EVENTS) as writer:
        with pytest.raises(UnfitRowsError, match="expected rows 0 to 30 of shared columns, got 28 to 32"):
            writer.append_many([NewFrame([RowSlice(shared, 28, 4, 0)], 4, 1, 1)], 0)
        with pytest.raises(UnfitRowsError, match="expected slices of 5 rows for the frame, got 4 rows"):
            writer.append_many([NewFrame([RowSlice(shared, 0, 4, 0)], 5, 1, 1)], 0)
        assert writer.end == 0
    with (
        LogWriter(tmp_path / "numbers", LogDescription(Schema((Field("n", FieldType.INT),)))) as other,
        pytest.raises(UnfitRowsError, match="expected the columns n; got shared columns at, s, on, x"),
    ):
        other.append_many([NewFrame([RowSlice(shared, 0, 1, 0)], 1, 1, 1)], 0)


@pytest.mark.parametrize("most", [5, 10_000])
def test_a_source_starts_and_stops_inside_frames(tmp_path: Path, most: int) -> None:
    sent = sent_frames(4)
    for name, append in (("alone", append_alone), ("joined", append_joined)):
        with LogWriter(tmp_path / name, ON_EVENTS) as writer:
            append(writer, sent)
    for start in range(0, len(sent), 3):
        for stop in (start + 2, start + 11):
            seen = [_read(tmp_path / name, start, stop, most) for name in ("alone", "joined")]
            assert seen[0] == seen[1]
            assert seen[0].rows or start >= stop - 2


class _Seen(NamedTuple):
    rows: list[tuple[int, int, int]]
    ended: bool


def _read(path: Path, start: int, stop: int, most: int) -> _Seen:
    """Return position, arrival and time of the rows that a source emits between two times (us)."""
    source = Source("in", LogReader(path).cursor(0), ["x"], Needs(position=True), start, stop)
    queue = Queue(QueueAccount())
    source.outputs.append(queue)
    while not source.ended and source.behind:
        source.read(most)
    rows = []
    while len(queue):
        batch = queue.pop()
        if batch.size:
            rows += zip(*(each.tolist() for each in (batch.position, batch.arrival, batch.time)), strict=True)
    return _Seen(rows, source.ended)
