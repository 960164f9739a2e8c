"""Rows that the feeder reads from files, and the streams inferred from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.support.reading_files import CSV, READINGS, ROWS, written

from mavstream_feeder import (
    FileSource,
    UnreadableFile,
    infer_stream,
)
from mavstream_feeder.input.sample import DATA, STREAMS, sample_file, write_sample
from mavstream_protocol.manifest import Manifest
from mavstream_protocol.tuples import decode_rows, rows_of


def due(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.int64) + 1_000_000


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_files_of_all_kinds_give_the_same_rows(tmp_path: Path, kind: str) -> None:
    source = FileSource(written(tmp_path, kind), READINGS)
    first = source.take(due(2))
    rest = source.take(due(2))
    assert rows_of(first) + rows_of(rest) == [
        {**row, "at": str(row["at"])} for row in rows_of(decode_rows(READINGS.schema(), ROWS))
    ]
    assert source.over
    assert source.take(due(1)) is None


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_stream_is_inferred_from_a_file(tmp_path: Path, kind: str) -> None:
    spec = infer_stream("readings", written(tmp_path, kind))
    assert spec.schema() == READINGS.schema()
    assert spec.event_time == "at"


def test_a_file_repeats_until_its_limit(tmp_path: Path) -> None:
    source = FileSource(written(tmp_path, "csv"), READINGS, loop=True, limit=8)
    assert source.take(due(5)).column("home").to_pylist() == [1, 2, 3, 1, 2]
    assert not source.over
    assert source.take(due(5)).column("home").to_pylist() == [3, 1, 2]
    assert source.over


def test_due_times_replace_event_times_or_fill_in_missing_ones(tmp_path: Path) -> None:
    path = written(tmp_path, "csv")
    stamped = FileSource(path, READINGS, stamp=True).take(due(3))
    assert stamped.column("at").cast(pa.int64()).to_pylist() == due(3).tolist()
    assert stamped.column("home").to_pylist() == [1, 2, 3]
    path.write_text("".join(line.split(",", 1)[1] for line in CSV.splitlines(keepends=True)))
    again = FileSource(path, READINGS, stamp=True).take(due(3))
    assert again.equals(stamped)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (CSV.replace("celsius", "warmth"), "column 'warmth' is not in the stream"),
        (CSV.replace("20.5", "warm"), "line 2, column 'celsius': 'warm' is no float"),
        (CSV.replace("2026-03-01T00:00:02Z", "noon"), "noon"),
        (CSV.replace("20.5", ""), "celsius"),
    ],
)
def test_errors_of_invalid_files_are_explained(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "readings.csv"
    path.write_text(content)
    with pytest.raises(UnreadableFile, match=words):
        FileSource(path, READINGS).take(due(3))


def test_missing_files_and_unknown_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="does not exist"):
        FileSource(tmp_path / "readings.csv", READINGS).take(due(1))
    with pytest.raises(UnreadableFile, match=r"expected a file that ends in .csv, .*, got '.*\.txt'"):
        FileSource(tmp_path / "readings.txt", READINGS).take(due(1))
    empty = tmp_path / "empty.csv"
    empty.write_text("at,home,room,celsius,on\n")
    with pytest.raises(UnreadableFile, match="has no rows to repeat"):
        FileSource(empty, READINGS, loop=True).take(due(1))


def test_the_sample_data_is_the_output_of_its_script(tmp_path: Path) -> None:
    write_sample(tmp_path)
    for name, spec in STREAMS.items():
        assert (tmp_path / f"{name}.csv").read_bytes() == sample_file(name).read_bytes()
        inferred = infer_stream(name, sample_file(name))
        types = [(field.name, field.type) for field in spec.schema()]
        assert [(field.name, field.type) for field in inferred.schema()] == types
        assert inferred.event_time == spec.event_time
    assert sum(path.stat().st_size for path in DATA.iterdir()) < 300_000


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())])
def test_texts_of_every_layout_are_strings(tmp_path: Path, kind: pa.DataType) -> None:
    path = tmp_path / "rooms.parquet"
    pyarrow.parquet.write_table(pa.table({"room": pa.array(["hall", "attic"]).cast(kind)}), path)
    spec = infer_stream("rooms", path)
    assert rows_of(FileSource(path, spec).take(due(2))) == [{"room": "hall"}, {"room": "attic"}]


def test_a_dataset_of_homes_can_be_fed_into_the_streams_of_the_sample() -> None:
    homes = Manifest.load(DATA / "homes")
    for name, spec in STREAMS.items():
        data = homes.stream(name)
        assert (spec.fields, spec.event_time) == (data.fields, data.event_time)
