"""Datasets written by Spark jobs: complete, or not there at all."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mavstream_protocol import FieldSpec, StreamSpec
from mavstream_protocol.manifest import (
    MANIFEST,
    BadLines,
    DataFile,
    InvalidDataset,
    Kind,
    Manifest,
    StreamData,
)
from mavstream_protocol.tuples.canonical import arrow_schema
from mavstream_spark.datasets.batch_writer import MakeBatches, write_batches
from mavstream_spark.datasets.checksum import checksum_columns, checksum_of, digits
from mavstream_spark.datasets.files import WrittenFile
from mavstream_spark.datasets.publication import absolute, check_free, publish
from mavstream_spark.datasets.slices import SlicedStream
from mavstream_spark.datasets.storage import Storage
from mavstream_spark.session import settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SLICE_ROWS = 500_000
"""About how many rows one task sorts and writes: they fit into memory, whatever the size of the dataset."""
_MAX_SLICES = 20_000
_MIN_TASK_ROWS = 50_000
_DAY = "day"
_FIRST, _LAST = "first", "last"
_SECOND = 1_000_000
# The number of slices is known: Spark need not stop behind the shuffle to plan the rest again.
_FIXED_PLAN = {"spark.sql.adaptive.enabled": "false"}


class DatasetWriter:
    """Writes the streams of a dataset to a folder beside its final one."""

    def __init__(
        self, spark: SparkSession, storage: Storage, folder: str, begin: int | None, end: int | None
    ) -> None:
        self._spark = spark
        self._storage = storage
        self.folder = folder
        self.begin = begin
        self.end = end
        self.streams: dict[str, StreamData] = {}
        self.truth: StreamData | None = None
        self.bad_lines: BadLines | None = None

    def write_frame(self, spec: StreamSpec, frame: DataFrame, expected_rows: int) -> StreamData:
        """Write a stream in the order of time, a folder per day; `expected_rows` need not be exact.

        Spark sorts and writes. Each task takes one slice of time, so the names of the files sort like their
        rows. Rows outside of the dataset's time are left out.
        """
        from pyspark.sql import Observation
        from pyspark.sql.functions import expr

        assert spec.event_time is not None
        begin, end = self._time_range()
        time = f"unix_micros(`{spec.event_time}`)"
        # Small streams have a few slices too, or all cores but one would idle in the last step.
        at_least = min(max(expected_rows // _MIN_TASK_ROWS, 1), 4)
        slices = min(max(math.ceil(expected_rows / SLICE_ROWS), at_least), _MAX_SLICES)
        width = max(-(-(end - begin) // slices), 1)
        names = [field.name for field in spec.fields]
        observed = Observation()
        frame = (
            frame.where(f"{time} >= {begin}L AND {time} < {end}L")
            .repartitionById(slices, expr(f"CAST(({time} - {begin}L) DIV {width}L AS INT)"))
            .withColumn(_DAY, expr(f"CAST(`{spec.event_time}` AS DATE)"))
            # By all columns, so that rows of the same time have one order too.
            .sortWithinPartitions(_DAY, spec.event_time, *names)
            # Observed where rows are written: each of these tasks counts once, even if it is retried.
            .observe(observed, *checksum_columns(names), *_range_columns(time))
        )
        with settings(self._spark, _FIXED_PLAN):
            frame.write.partitionBy(_DAY).parquet(f"{self.folder}/{spec.name}")
        values = observed.get
        rows, checksum = checksum_of(values)
        entry = self._entry(spec, rows, checksum, (values[_FIRST], values[_LAST]))
        self.streams[spec.name] = entry
        return entry

    def write_answer(self, name: str, fields: tuple[FieldSpec, ...], frame: DataFrame) -> StreamData:
        """Write rows that have no order, as an entry without time."""
        from pyspark.sql import Observation

        observed = Observation()
        frame.observe(observed, *checksum_columns(frame.columns)).write.parquet(f"{self.folder}/{name}")
        rows, checksum = checksum_of(observed.get)
        self.streams[name] = StreamData(
            fields=fields, event_time=None, rows=rows, time_range=None, rate=None, checksum=checksum, files=()
        )
        return self.streams[name]

    def write_batches(
        self, streams: Mapping[StreamSpec, int], make: MakeBatches, numbers: int, partitions: int
    ) -> dict[str, StreamData]:
        """Write streams as `write_frame` does, all in one job, from batches that Python makes.

        `make` is called with every number from 0 to `numbers` - 1, in `partitions` tasks. `streams` says
        about how many rows each stream has.
        """
        context = self._spark.sparkContext
        sliced = self._sliced(streams)
        slices = sum(stream.slices for stream in sliced)
        tasks = max(math.ceil(sum(streams.values()) / SLICE_ROWS), context.defaultParallelism)
        written = write_batches(
            context.range(0, numbers, 1, min(partitions, numbers)),
            make,
            sliced,
            self._storage,
            self.folder,
            min(tasks, slices),
        )
        for spec in streams:
            files = [file for file in written if file.stream == spec.name]
            self.streams[spec.name] = self._entry_of_files(spec, files)
        return {spec.name: self.streams[spec.name] for spec in streams}

    def _sliced(self, streams: Mapping[StreamSpec, int]) -> list[SlicedStream]:
        begin, end = self._time_range()
        sliced: list[SlicedStream] = []
        count = 0
        for spec, rows in streams.items():
            assert spec.event_time is not None
            slices = min(max(math.ceil(rows / SLICE_ROWS), 1), _MAX_SLICES)
            schema = arrow_schema(spec.schema())
            sliced.append(
                SlicedStream(spec.name, schema, spec.event_time, begin, end, slices, rows // slices, count)
            )
            count += slices
        return sliced

    def _entry_of_files(self, spec: StreamSpec, written: list[WrittenFile]) -> StreamData:
        times = (min((f.first for f in written), default=0), max((f.last for f in written), default=0))
        checksum = digits(sum(file.hashes for file in written))
        entry = self._entry(spec, sum(file.rows for file in written), checksum, times)
        files = sorted((DataFile(path=file.path, rows=file.rows) for file in written), key=lambda f: f.path)
        return entry.model_copy(update={"files": tuple(files)})

    def _entry(self, spec: StreamSpec, rows: int, checksum: str, times: tuple[int, int]) -> StreamData:
        begin, end = self._time_range()
        return StreamData(
            fields=spec.fields,
            event_time=spec.event_time,
            rows=rows,
            time_range=times if rows else None,
            rate=round(rows * _SECOND / (end - begin), 6),
            checksum=checksum,
            files=(),
        )

    def _time_range(self) -> tuple[int, int]:
        assert self.begin is not None
        assert self.end is not None
        return self.begin, self.end

    def finish(self) -> None:
        """List the files that Spark wrote by itself, with the numbers of rows in their footers."""
        for name, entry in self.streams.items():
            if not entry.rows or entry.files:
                continue
            files = sorted(self._files(name), key=lambda file: file.path)
            written = sum(file.rows for file in files)
            if written != entry.rows:
                raise InvalidDataset(
                    f"stream '{name}': {entry.rows} rows went to '{self.folder}/{name}', but its files hold "
                    f"{written}: something else writes there, run the job again"
                )
            self.streams[name] = entry.model_copy(update={"files": tuple(files)})

    def _files(self, name: str) -> Iterator[DataFile]:
        for path, size in self._storage.files(f"{self.folder}/{name}"):
            rows = self._storage.parquet_rows(f"{self.folder}/{name}/{path}", size)
            yield DataFile(path=f"{name}/{path}", rows=rows)

    def manifest(self, kind: Kind, options: dict[str, Any]) -> Manifest:
        """Return the manifest of what was written."""
        return Manifest(
            kind=kind,
            options=options,
            begin=self.begin,
            end=self.end,
            streams=self.streams,
            truth=self.truth,
            bad_lines=self.bad_lines,
        )


def _range_columns(time: str) -> list[Any]:
    from pyspark.sql.functions import expr

    return [expr(f"min({time})").alias(_FIRST), expr(f"max({time})").alias(_LAST)]


@contextmanager
def new_dataset(
    spark: SparkSession,
    folder: str,
    kind: Kind,
    options: dict[str, Any],
    *,
    begin: int | None = None,
    end: int | None = None,
    overwrite: bool = False,
) -> Iterator[DatasetWriter]:
    """Yield a writer; when the block ends without an error, the dataset appears in `folder` in one step.

    Everything is written to a hidden folder beside it, which is removed if the block fails; after a kill it
    is left there, without a manifest. Raises InvalidDataset if `folder` is taken.
    """
    folder = absolute(folder)
    storage = Storage(spark, folder)
    check_free(storage, folder, overwrite)
    name = storage.name(folder)
    unfinished = storage.sibling(folder, f".{name}.{secrets.token_hex(4)}.unfinished")
    writer = DatasetWriter(spark, storage, unfinished, begin, end)
    try:
        yield writer
        writer.finish()
        storage.write(f"{unfinished}/{MANIFEST}", writer.manifest(kind, options).text())
        publish(storage, unfinished, folder, overwrite)
    except BaseException:
        storage.remove(unfinished)
        raise
