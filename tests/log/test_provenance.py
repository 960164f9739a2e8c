"""Provenance of result frames: what is written is read back, and equal values are stored once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_server.columns.batch import Batch, Mark
from mavstream_server.columns.column import Column
from mavstream_server.engine.sinks import ResultLogSink
from mavstream_server.log import LogDescription, LogReader, LogWriter
from mavstream_server.log.format.frame import Frame
from mavstream_server.log.format.provenance import Provenance, encode_provenance
from mavstream_server.log.options import LogOptions

SCHEMA = Schema((Field("n", FieldType.INT), Field("s", FieldType.STRING)))


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def batch(
    *numbers: int,
    arrival: np.ndarray,
    time: np.ndarray | None = None,
    row_watermark: np.ndarray | None = None,
    mark: Mark | None = None,
) -> Batch:
    columns = {
        "n": Column(ints(*numbers)),
        "s": Column.from_list(FieldType.STRING, [str(number) for number in numbers]),
    }
    size = len(numbers)
    return Batch(columns, size, arrival, time=time, row_watermark=row_watermark, mark=mark)


def stored(folder: Path, *batches: Batch, positions: list[int], segment: int = 1 << 16) -> list[Frame]:
    """Append batches to a result log, and return its frames that have rows or provenance."""
    writer = LogWriter(folder, LogDescription(SCHEMA), LogOptions(segment_bytes=segment))
    sink = ResultLogSink(writer, SCHEMA.names, epoch=3)
    for each in batches:
        sink.append(each, 1_000, positions)
    writer.close()
    spans = LogReader(folder).cursor(0).take(1 << 20)
    return [frame for frame, _, _ in spans if frame.rows or frame.traced]


def only(frames: list[Frame]) -> Provenance:
    (frame,) = frames
    assert frame.provenance is not None
    return frame.provenance


def test_times_of_rows_are_read_back(tmp_path: Path) -> None:
    time, arrival, watermark = ints(50, 40, 60), ints(7, 8, 9), ints(0, 50, 50)
    mark = Mark(60, 10, end=True)
    frames = stored(
        tmp_path,
        batch(1, 2, 3, arrival=arrival, time=time, row_watermark=watermark, mark=mark),
        positions=[17, 23],
    )
    found = only(frames)
    assert found.time is not None
    assert found.time.tolist() == [50, 40, 60]
    assert found.arrival.tolist() == [7, 8, 9]
    assert found.row_watermark is not None
    assert found.row_watermark.tolist() == [0, 50, 50]
    assert found.positions == (17, 23)
    assert found.mark == mark
    assert frames[0].column("n").values.tolist() == [1, 2, 3]
    assert frames[0].column("s").to_list(FieldType.STRING) == ["1", "2", "3"]


def test_rows_in_order_have_their_time_as_watermark(tmp_path: Path) -> None:
    time = ints(5, 6)
    found = only(
        stored(tmp_path, batch(1, 2, arrival=ints(7, 7), time=time, row_watermark=time), positions=[2])
    )
    assert found.row_watermark is not None
    assert found.row_watermark.tolist() == [5, 6]


def test_results_without_a_watermark_are_never_late(tmp_path: Path) -> None:
    found = only(stored(tmp_path, batch(1, arrival=ints(7), time=ints(5)), positions=[]))
    assert found.row_watermark is None
    assert found.mark is None
    assert found.positions == ()


@pytest.mark.parametrize("mark", [Mark(9, 8), Mark(arrival=8, gap=4), Mark(9, 8, 4, end=True)])
def test_a_mark_without_rows_is_a_frame_of_its_own(tmp_path: Path, mark: Mark) -> None:
    frames = stored(
        tmp_path,
        batch(1, arrival=ints(7), time=ints(5)),
        Batch({}, 0, ints(), mark=mark),
        batch(2, arrival=ints(9), time=ints(6)),
        positions=[3],
    )
    assert [frame.rows for frame in frames] == [1, 0, 1]
    assert [frame.provenance.mark for frame in frames if frame.provenance] == [None, mark, None]
    assert [frame.first_position for frame in frames] == [0, 1, 1]


def test_equal_values_are_stored_once() -> None:
    many, same = np.arange(100, dtype=np.int64), np.full(100, 5, dtype=np.int64)
    columns = {"n": Column(many)}
    constant = len(encode_provenance(Batch(columns, 100, same, time=same, row_watermark=same), [1]))
    single = len(encode_provenance(Batch({"n": Column(many[:1])}, 1, same[:1], time=same[:1]), [1]))
    different = len(encode_provenance(Batch(columns, 100, many, time=many, row_watermark=many), [1]))
    assert constant == single
    assert different == constant + 2 * 800


def test_provenance_spans_segments(tmp_path: Path) -> None:
    rows = [batch(number, arrival=ints(number), time=ints(number)) for number in range(200)]
    frames = stored(tmp_path, *rows, positions=[1], segment=4096)
    assert len({frame.segment.info.serial for frame in frames}) > 1
    times = [frame.provenance.time for frame in frames if frame.provenance is not None]
    assert [int(time[0]) for time in times if time is not None] == list(range(200))
