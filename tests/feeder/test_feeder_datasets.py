"""Datasets: streams registered from a manifest, files read in time order with little memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.support.commands.in_process import command
from tests.support.servers.running_server import PATIENCE, RunningServer, running_server

from mavstream import Client, stream
from mavstream_feeder import FileSource, UnreadableFile, infer_stream
from mavstream_feeder.input.arguments import InputArguments, read_feeds
from mavstream_protocol import FieldSpec, FieldType, StreamSpec
from mavstream_protocol.manifest import DataFile, InvalidDataset, Manifest, StreamData
from mavstream_protocol.streams import Retention

SECOND = 1_000_000
DAY = 86_400 * SECOND
BEGIN = 1_772_323_200 * SECOND  # 2026-03-01
FIELDS = (FieldSpec(name="at", type=FieldType.TIMESTAMP), FieldSpec(name="n", type=FieldType.INT))
PER_FILE = 300


def write_dataset(folder: Path, *names: str) -> Manifest:
    """Write streams of two days, two files each, as a Spark job does; rows are numbered in order of time."""
    streams = {}
    for name in names:
        files = []
        for number in range(4):
            path = f"{name}/day=2026-03-0{1 + number // 2}/part-{number:05}.parquet"
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            n = np.arange(PER_FILE) + number * PER_FILE
            at = BEGIN + n * (2 * DAY // (4 * PER_FILE))
            table = pa.table({"at": pa.array(at, pa.timestamp("us", "UTC")), "n": n})
            pyarrow.parquet.write_table(table, folder / path, row_group_size=100)
            files.append(DataFile(path=path, rows=PER_FILE))
        streams[name] = StreamData(
            fields=FIELDS,
            event_time="at",
            rows=4 * PER_FILE,
            time_range=(BEGIN, int(at[-1])),
            rate=4 * PER_FILE / (2 * DAY / SECOND),
            checksum="0" * 16,
            files=tuple(files),
        )
    manifest = Manifest(kind="plain", options={}, begin=BEGIN, end=BEGIN + 2 * DAY, streams=streams)
    (folder / "manifest.json").write_text(manifest.text())
    return manifest


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dataset")
    write_dataset(folder, "motion", "doors")
    return folder


def test_streams_are_fed_as_recorded_unless_a_rate_is_given(dataset: Path) -> None:
    feeds = {feed.name: feed for feed in read_feeds(InputArguments(data=dataset), ["doors=500"])}
    assert str(feeds["motion"].rate) == "recorded"
    assert str(feeds["doors"].rate) == "500"
    assert feeds["motion"].origin == BEGIN / SECOND
    assert feeds["motion"].period == 2 * 86_400
    assert [path.parent.name for path in feeds["motion"].paths] == [
        "day=2026-03-01",
        "day=2026-03-01",
        "day=2026-03-02",
        "day=2026-03-02",
    ]
    (only,) = read_feeds(InputArguments(data=dataset, streams=["doors"]))
    assert only.name == "doors"


def test_files_are_read_one_after_the_other(dataset: Path) -> None:
    (feed,) = read_feeds(InputArguments(data=dataset, streams=["doors"]))
    assert feed.spec is not None
    source = FileSource(feed.paths, feed.spec, loop=True)
    found: list[int] = []
    for _ in range(5):
        rows = source.take(np.zeros(500, dtype=np.int64))
        assert rows is not None
        found += rows.column("n").to_pylist()
    assert found == [n % (4 * PER_FILE) for n in range(2500)]
    assert tuple(source.position_at(source.taken)) == (100, 2)


def test_an_incomplete_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidDataset, match="not a complete dataset"):
        read_feeds(InputArguments(data=tmp_path))
    manifest = write_dataset(tmp_path, "doors")
    with pytest.raises(InvalidDataset, match="has no stream 'windows': it has doors"):
        read_feeds(InputArguments(data=tmp_path, streams=["windows"]))
    with pytest.raises(UnreadableFile, match="--stream chooses from a dataset"):
        read_feeds(InputArguments(streams=["doors"]))
    last = tmp_path / manifest.streams["doors"].files[-1].path
    pyarrow.parquet.write_table(pyarrow.parquet.read_table(last).slice(1), last)
    with pytest.raises(
        UnreadableFile, match="has 299 rows, expected 300 as the manifest says: generate the dataset again"
    ):
        read_feeds(InputArguments(data=tmp_path))


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "long.parquet"
    schema = pa.schema([pa.field("at", pa.timestamp("us", "UTC"), False), pa.field("n", pa.int64(), False)])
    group, groups = 50_000, 40
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for number in range(groups):
            n = np.arange(group) + number * group
            writer.write_table(pa.table([pa.array(n, schema.field("at").type), n], schema=schema), group)
    spec = StreamSpec(name="long", fields=FIELDS, event_time="at")
    assert infer_stream("long", path).schema() == spec.schema()
    source = FileSource(path, spec)
    before, most, rows = pa.total_allocated_bytes(), 0, 0
    while (part := source.take(np.zeros(4096, dtype=np.int64))) is not None:
        rows += part.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
    assert rows == source.total == group * groups
    # A row takes 16 bytes: a row group as it is stored and as it is decoded, where the file has forty.
    assert most < 5 * group * 16


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


def test_the_command_registers_and_replays_a_dataset(server: RunningServer, dataset: Path) -> None:
    # Two days in a tenth of a second.
    words = ("--url", server.url, "feed", "--data", str(dataset), "--speed", "1000000x", "-o", "json")
    done = command(*words, "--retention", "10m", "--idle-timeout", "2s")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {name: each["acked"] for name, each in report["streams"].items()} == {
        "motion": 1200,
        "doors": 1200,
    }
    assert report["stopped"] == "done"
    with Client(server.url) as client:
        info = client.stream_info("motion")
        assert info.spec.event_time == "at"
        assert info.spec.fields == FIELDS
        assert info.spec.retention == Retention.model_validate("10m")
        assert info.spec.idle_timeout == 2 * SECOND
        assert info.position == 4 * PER_FILE
        query = client.submit(stream("motion").project(n="n"), name="all", from_="earliest")
        found = query.results().to_arrow(4 * PER_FILE, timeout=PATIENCE).column("n").to_pylist()
    assert found == list(range(4 * PER_FILE))


def test_a_dataset_can_be_resumed_where_it_stopped(server: RunningServer, dataset: Path) -> None:
    words = ("--url", server.url, "feed", "--data", str(dataset), "--stream", "doors", "-o", "json")
    with Client(server.url) as client:
        first = command(*words, "--speed", "1000000x", "--limit", "1190")
        assert first.returncode == 0, first.stderr
        before = client.stream_info("doors").position
        done = command(*words, "--speed", "1000000x", "--skip", "doors=1190")
        assert done.returncode == 0, done.stderr
        assert client.stream_info("doors").position == before + 10
    assert json.loads(first.stdout)["streams"]["doors"]["row"] == 1190
    assert json.loads(done.stdout)["streams"]["doors"]["row"] == 1200
