"""Recorded arrivals: rows are due as recorded, faster or slower, once or repeatedly."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from tests.support.reading_files import READINGS, written

from mavstream_feeder import (
    Address,
    Feeder,
    FileSource,
    InvalidRate,
    Recorded,
    Schedule,
    UnreadableFile,
    parse_rate,
)
from mavstream_feeder.pacing.arrivals import RecordedArrivals
from mavstream_feeder.pacing.rates import parse_speed
from mavstream_feeder.sending.feeds import Feed
from mavstream_protocol import StreamSpec

BEGIN = 1772323200.0  # of the readings, in seconds since 1970
MANY = 1 << 30
OFFSETS = "arrival_offset,n\n0.5,1\n2,2\n2.25,3\n"
NUMBERS = StreamSpec.model_validate({"name": "numbers", "fields": [{"name": "n", "type": "int"}]})


def due_times(
    source: FileSource, rate: Recorded, start: float = 100.0, until: float = math.inf
) -> list[float]:
    return RecordedArrivals(rate, start, source.ahead).take(until, MANY).tolist()


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_rows_are_due_at_the_intervals_of_their_event_times(tmp_path: Path, kind: str) -> None:
    rate = Recorded(origin=BEGIN)
    source = FileSource(written(tmp_path, kind), READINGS, recorded=rate)
    assert source.begin() == BEGIN
    assert due_times(source, rate) == [100.0, 101.25, 102.0]
    taken = source.take(np.zeros(5, dtype=np.int64))
    assert taken is not None
    assert taken.column("home").to_pylist() == [1, 2, 3]
    assert source.over


def test_the_arrival_offset_column_is_read_and_not_fed(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text(OFFSETS)
    rate = Recorded("arrival_offset")
    source = FileSource(path, NUMBERS, recorded=rate)
    assert source.counts_seconds
    assert due_times(source, rate) == [100.5, 102.0, 102.25]
    rows = source.take(np.zeros(3, dtype=np.int64))
    assert rows is not None
    assert rows.schema.names == ["n"]


def test_speed_shortens_the_intervals(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text(OFFSETS)
    rate = Recorded("arrival_offset").faster(10)
    assert due_times(FileSource(path, NUMBERS, recorded=rate), rate) == pytest.approx(
        [100.05, 100.2, 100.225]
    )
    assert str(parse_rate("40@150s,80").faster(10)) == "400@15s,800"
    assert parse_rate("max").faster(10) == parse_rate("max")


@pytest.mark.parametrize(("text", "speed"), [("10x", 10.0), ("0.5x", 0.5), ("2", 2.0)])
def test_speeds_are_read(text: str, speed: float) -> None:
    assert parse_speed(text) == speed


@pytest.mark.parametrize("text", ["fast", "", "-1x", "0x", "xx", "1e99x"])
def test_invalid_speeds_are_refused(text: str) -> None:
    with pytest.raises(InvalidRate, match="expected a speed such as 10x"):
        parse_speed(text)


def test_a_row_out_of_order_is_due_with_the_one_before_it(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("arrival_offset,n\n1,1\n0.25,2\n1.5,3\n")
    rate = Recorded("arrival_offset")
    assert due_times(FileSource(path, NUMBERS, recorded=rate), rate) == [101.0, 101.0, 101.5]


def test_a_repeated_recording_continues_in_time(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("arrival_offset,n\n1,1\n2,2\n4,3\n")
    rate = Recorded("arrival_offset")
    alone = FileSource(path, NUMBERS, recorded=rate, loop=True)
    # The pass lasts from 1 to 4, and a mean gap of 1.5 lies between two passes.
    assert due_times(alone, rate, 0.0, until=12.0) == [1.0, 2.0, 4.0, 5.5, 6.5, 8.5, 10.0, 11.0]
    given = FileSource(path, NUMBERS, recorded=rate, loop=True, period=10.0)
    assert due_times(given, rate, 0.0, until=21.0) == [1.0, 2.0, 4.0, 11.0, 12.0, 14.0, 21.0]


def test_a_recorded_stream_leaves_the_schedule_at_its_end(tmp_path: Path) -> None:
    rate = Recorded(origin=BEGIN)
    source = FileSource(written(tmp_path, "csv"), READINGS, recorded=rate)
    schedule = Schedule()
    schedule.join("readings", RecordedArrivals(rate, 0.0, source.ahead))
    assert schedule.next_due() == 0.0
    assert [len(each.times) for each in schedule.take(1.5, MANY)] == [2]
    assert schedule.next_due() == 2.0
    schedule.take(2.0, MANY)
    assert not schedule


def test_due_times_can_replace_the_recorded_event_times(tmp_path: Path) -> None:
    rate = Recorded(origin=BEGIN)
    source = FileSource(written(tmp_path, "csv"), READINGS, recorded=rate, stamp=True)
    assert due_times(source, rate) == [100.0, 101.25, 102.0]
    rows = source.take(np.array([7, 8, 9], dtype=np.int64))
    assert rows is not None
    assert rows.column("at").cast("int64").to_pylist() == [7, 8, 9]


def test_files_without_recorded_times_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("arrival_offset,n\n,1\n")
    with pytest.raises(UnreadableFile, match=r"stream 'numbers' has no event time.*recorded:arrival_offset"):
        FileSource(path, NUMBERS, recorded=Recorded())
    with pytest.raises(UnreadableFile, match="'on' of stream 'readings' is of type bool"):
        FileSource(written(tmp_path, "csv"), READINGS, recorded=Recorded("on"))
    with pytest.raises(UnreadableFile, match="arrival_offset"):
        FileSource(path, NUMBERS, recorded=Recorded("arrival_offset")).ahead()


@pytest.mark.parametrize("loop", [False, True])
def test_skipped_rows_count_as_done(tmp_path: Path, loop: bool) -> None:
    source = FileSource(written(tmp_path, "csv"), READINGS, skip=2, loop=loop)
    rows = source.take(np.zeros(2, dtype=np.int64))
    assert rows is not None
    assert rows.column("home").to_pylist() == ([3, 1] if loop else [3])
    assert tuple(source.position_at(source.taken)) == ((1, 1) if loop else (3, 0))


def test_a_source_without_times_cannot_be_fed_as_recorded(tmp_path: Path) -> None:
    feeder = Feeder(Address("http://127.0.0.1:9"))
    with pytest.raises(ValueError, match="'readings' is fed as recorded: make its source with"):
        feeder.add("readings", FileSource(written(tmp_path, "csv"), READINGS), Recorded())


def test_without_an_origin_the_first_row_is_due_when_the_stream_joins(tmp_path: Path) -> None:
    source = FileSource(written(tmp_path, "csv"), READINGS, recorded=Recorded())
    feed = Feed("readings", source, Recorded())
    assert feed.arrivals(5.0, seed=0).take(math.inf, MANY).tolist() == [5.0, 6.25, 7.0]
