"""Datasets: deterministic rows in time order, published completely or not at all."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest
from tests.support.spark.session import HOMES, SETTINGS

from mavstream_feeder.input.sample import DATA
from mavstream_protocol.manifest import MANIFEST, InvalidDataset, Manifest
from mavstream_protocol.tuples import decode_batch
from mavstream_spark.datasets import writer
from mavstream_spark.datasets.checksum import checksum, digits, sum_of_hashes
from mavstream_spark.datasets.files import WrittenFile, save_files
from mavstream_spark.datasets.reader import Dataset
from mavstream_spark.datasets.storage import Storage
from mavstream_spark.datasets.writer import new_dataset
from mavstream_spark.errors import InvalidJob
from mavstream_spark.generate.homes import HomesOptions, generate_homes
from mavstream_spark.generate.plain import PlainOptions, generate_plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ("tests.support.spark.fixtures",)
pytestmark = pytest.mark.xdist_group("spark")

ONE_CORE = f"""
import sys
from mavstream_spark.generate.homes import HomesOptions, generate_homes
from mavstream_spark.progress import Lines
from mavstream_spark.session import start_session

spark = start_session("local[1]", {SETTINGS!r})
generate_homes(spark, sys.argv[1] + "/whole", {HOMES!r})
progress = Lines(spark, sys.stderr, period=0.05)
generate_homes(spark, sys.argv[1] + "/half", HomesOptions(homes=40, days=2), progress=progress)
"""


def table_of(manifest: Manifest, folder: Path, stream: str) -> pa.Table:
    """Read a stream as the feeder does: its files one after the other."""
    data = manifest.stream(stream)
    return pa.concat_tables(
        pyarrow.parquet.read_table(path, partitioning=None) for path in data.paths(folder)
    )


def mount(spark: SparkSession, name: str, folder: Path) -> None:
    """Make a folder known as `viewfs://NAME/data`, where Python cannot write."""
    context: Any = spark.sparkContext
    context._jsc.hadoopConfiguration().set(f"fs.viewfs.mounttable.{name}.link./data", folder.as_uri())


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files of a folder, hidden ones included."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def checksums(manifest: Manifest) -> dict[str, tuple[int, str]]:
    assert manifest.truth is not None
    entries = {**manifest.streams, "truth": manifest.truth}
    return {name: (data.rows, data.checksum) for name, data in entries.items()}


def test_rows_do_not_depend_on_partitions_and_slices(
    spark: SparkSession,
    homes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Many slices of time instead of one, made by a task per home-day.
    monkeypatch.setattr(writer, "SLICE_ROWS", 1500)
    first = Manifest.load(homes)
    again = generate_homes(spark, str(tmp_path / "again"), HOMES, partitions=HOMES.homes * HOMES.days)
    assert checksums(again) == checksums(first)
    assert len(again.streams["power"].files) > 3
    for name in ("motion", "power"):
        # Not only the same rows: the same order, whatever their files.
        assert table_of(again, tmp_path / "again", name).equals(table_of(first, homes, name))


def test_storage_that_only_spark_can_write_gets_the_same_files(
    spark: SparkSession, homes: Path, tmp_path: Path
) -> None:
    mount(spark, "homes-away", tmp_path)
    made = generate_homes(spark, "viewfs://homes-away/data/homes", HOMES)
    assert made == Manifest.load(homes)
    assert contents(tmp_path / "homes") == contents(homes)
    Dataset(spark, "viewfs://homes-away/data/homes").verify("motion")


def test_a_file_that_spark_did_not_save_as_encoded_is_detected(spark: SparkSession, tmp_path: Path) -> None:
    mount(spark, "broken-away", tmp_path)
    # Not a Parquet file: it does not end as the sink writes.
    file = WrittenFile("motion", "2026-03-01", slice=0, rows=1, first=0, last=0, hashes=0, size=5)
    files = spark.sparkContext.parallelize([(file, b"12345")])
    folder = "viewfs://broken-away/data/new"
    with pytest.raises(InvalidDataset, match="has 9 bytes, expected 5: Spark did not write"):
        save_files(files, Storage(spark, folder), folder)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which a process on one core wrote a dataset and was killed during a second one."""
    folder = tmp_path_factory.mktemp("killed")
    running = subprocess.Popen(
        [sys.executable, "-c", ONE_CORE, str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert running.stderr is not None
        lines = iter(running.stderr.readline, "")
        assert any(
            list(folder.glob(".half.*/*/*/*.parquet")) for line in lines if line.startswith("homes:")
        ), "it ended before the first file of the second dataset"
    finally:
        # Java is in the same process group.
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate()
    return folder


@pytest.mark.long
def test_rows_do_not_depend_on_the_cores(homes: Path, killed: Path) -> None:
    assert checksums(Manifest.load(killed / "whole")) == checksums(Manifest.load(homes))


def test_the_shipped_dataset_is_the_output_of_the_generator(homes: Path) -> None:
    shipped = DATA / "homes"
    assert Manifest.load(shipped).options == Manifest.load(homes).options
    assert checksums(Manifest.load(shipped)) == checksums(Manifest.load(homes))


def test_files_are_in_time_order_and_match_the_stream(homes: Path) -> None:
    manifest = Manifest.load(homes)
    # Nothing is left of attempts to write.
    assert {path.name for path in homes.iterdir()} == {*manifest.streams, "truth", MANIFEST}
    for name, data in manifest.streams.items():
        rows = table_of(manifest, homes, name)
        times = pc.cast(rows.column("at"), pa.int64()).to_numpy()
        assert (times[1:] >= times[:-1]).all()
        assert data.time_range == (times[0], times[-1])
        assert rows.num_rows == data.rows == sum(file.rows for file in data.files)
        assert data.rate == pytest.approx(data.rows / 86_400, abs=1e-6)
        assert all(f"{name}/day=2026-03-01/" in file.path for file in data.files)
        for batch in rows.to_batches():
            decode_batch(data.spec(name).schema(), batch)


def test_the_checksum_depends_on_the_rows_and_not_on_their_order(spark: SparkSession) -> None:
    def checksum_for(*rows: tuple[int | None, int | None]) -> str:
        columns = list(zip(*rows, strict=True))
        table = pa.table({"a": pa.array(columns[0], pa.int64()), "b": pa.array(columns[1], pa.int64())})
        frame = spark.createDataFrame(table)
        found = checksum(frame)
        assert found == checksum(frame.repartition(3)) == checksum(frame.orderBy("b"))
        return found[1]

    seen = [
        checksum_for((1, 2), (3, 4)),
        checksum_for((1, 2), (3, 5)),
        checksum_for((1, 2), (3, 4), (3, 4), (3, 4)),
        checksum_for((1, 2), (3, 4), (5, None), (5, None)),
        checksum_for((1, 2), (3, 4), (None, 5), (None, 5)),
    ]
    assert len(set(seen)) == len(seen)


def test_spark_and_python_hash_alike(spark: SparkSession) -> None:
    texts = ["", "ä", None, "a" * 31] + ["0123456789abcdefghijklmnopqrstu"[:size] for size in range(1, 31)]
    count = len(texts)
    numbers = [0, -1, None, 2**63 - 1, -(2**63), *range(count - 5)]
    columns = {
        "at": pa.array([*numbers[:-1], None], pa.int64()).view(pa.timestamp("us", "UTC")),
        "text": pa.array(texts),
        "number": pa.array(numbers),
        "share": pa.array([0.0, -0.0, None, 1e300, -2.5] + [0.1] * (count - 5)),
        "flag": pa.array([True, False, None] + [True] * (count - 3)),
    }
    table = pa.table(columns)
    assert checksum(spark.createDataFrame(table)) == (count, digits(sum_of_hashes(table)))
    assert sum_of_hashes(table.slice(0, 0)) == 0


def test_a_changed_file_is_detected(spark: SparkSession, homes: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(homes, copy)
    dataset = Dataset(spark, str(copy))
    dataset.verify("doors")
    (path, *_) = dataset.manifest.streams["doors"].paths(copy)
    rows = pyarrow.parquet.read_table(path, partitioning=None)
    pyarrow.parquet.write_table(rows.slice(1), path)
    with pytest.raises(
        InvalidDataset, match=f"has {rows.num_rows - 1} rows .* manifest says {rows.num_rows} "
    ):
        Dataset(spark, str(copy)).verify("doors")


def test_rows_are_counted_from_footers_of_any_length(spark: SparkSession, tmp_path: Path) -> None:
    storage = Storage(spark, str(tmp_path))
    for columns in (1, 100):
        file = tmp_path / "day=1" / f"{columns}.parquet"
        file.parent.mkdir(exist_ok=True)
        pyarrow.parquet.write_table(pa.table({f"c{each}": range(7) for each in range(columns)}), file)
        size = file.stat().st_size
        assert (f"day=1/{file.name}", size) in storage.files(str(tmp_path))
        assert storage.parquet_rows(str(file), size) == 7
    assert int.from_bytes(file.read_bytes()[-8:-4], "little") > 4096


@pytest.mark.long
def test_a_failed_job_leaves_no_files(spark: SparkSession, tmp_path: Path) -> None:
    def write_half() -> None:
        with new_dataset(spark, str(tmp_path / "half"), "homes", {}) as writer:
            spark.range(5).write.parquet(f"{writer.folder}/motion")
            assert list(tmp_path.iterdir())
            raise RuntimeError("no more disk")

    with pytest.raises(RuntimeError, match="no more disk"):
        write_half()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_killed_job_leaves_no_dataset(spark: SparkSession, killed: Path) -> None:
    out = killed / "half"
    assert not out.exists()
    (left,) = (path for path in killed.iterdir() if path.name != "whole")
    assert left.name.endswith(".unfinished")
    assert list(left.rglob("*.parquet"))
    for folder in (out, left):
        with pytest.raises(InvalidDataset, match=f"has no {MANIFEST}, so it is not a complete dataset"):
            Manifest.load(folder)
    with pytest.raises(InvalidDataset, match="not a complete dataset"):
        Dataset(spark, str(left))
    made = generate_plain(spark, str(out), PlainOptions(streams=1, rate="50@2s"))
    assert Manifest.load(out) == made


@pytest.mark.long
def test_a_dataset_is_replaced_only_with_overwrite(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine")
    options = PlainOptions(streams=1, rate="100@3s")
    first = generate_plain(spark, str(folder), options)
    with pytest.raises(InvalidDataset, match="holds a dataset: give a new folder, or --overwrite"):
        generate_plain(spark, str(folder), options)
    with pytest.raises(InvalidDataset, match="exists and is not a dataset"):
        generate_plain(spark, str(tmp_path / "other"), options, overwrite=True)
    second = generate_plain(spark, str(folder), PlainOptions(1, "100@3s", seed=1), overwrite=True)
    assert Manifest.load(folder) == second
    assert first.streams["readings1"].checksum != second.streams["readings1"].checksum
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "plain"]


def test_plain_rows_have_the_times_of_their_rate(spark: SparkSession, tmp_path: Path) -> None:
    options = PlainOptions(streams=2, rate="200@2s,0@1s,400@1s", start="2026-03-01T23:59:58Z", seed=3)
    made = generate_plain(spark, str(tmp_path / "p"), options, partitions=1)
    again = generate_plain(spark, str(tmp_path / "q"), options, partitions=3)
    assert {n: d.checksum for n, d in made.streams.items()} == {
        n: d.checksum for n, d in again.streams.items()
    }
    assert made.streams["readings1"].checksum != made.streams["readings2"].checksum
    rows = table_of(made, tmp_path / "p", "readings1")
    assert made.begin is not None
    offsets = (pc.cast(rows.column("at"), pa.int64()).to_numpy() - made.begin) / 1e6
    assert ((offsets < 2) | (offsets >= 3)).all()
    assert 650 < len(offsets) < 950
    days = {file.path.split("/")[1] for file in made.streams["readings1"].files}
    assert days == {"day=2026-03-01", "day=2026-03-02"}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (HomesOptions(homes=0), "0 homes on 7 days have no rows"),
        (HomesOptions(anomalies=2), "a share from 0 to 1, got 2"),
        (HomesOptions(start="2026-03-01T10:00:00Z"), "is not a midnight: give a date"),
        (HomesOptions(start="March"), "start: instant 'March' is not ISO 8601"),
    ],
)
def test_invalid_options_are_refused(options: HomesOptions, complaint: str) -> None:
    with pytest.raises(InvalidJob, match=complaint):
        options.plan()
