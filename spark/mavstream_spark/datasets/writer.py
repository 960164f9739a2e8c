"""Datasets: written whole or not at all, and read again."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
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
from mavstream_spark.datasets.checksum import checksum, checksum_columns, checksum_of
from mavstream_spark.datasets.footers import parquet_rows
from mavstream_spark.datasets.publication import absolute, check_free, publish
from mavstream_spark.datasets.slices import Sliced
from mavstream_spark.datasets.storage import Storage
from mavstream_spark.datasets.together import Make, WrittenFile, write_together
from mavstream_spark.plans.sql import SPARK_TYPES
from mavstream_spark.plans.windows import POSITION, TIME
from mavstream_spark.session import settings
from mavstream_spark.shipping import workers_are_here

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

SLICE_ROWS = 500_000
"""Rows that one task sorts and writes, about: what fits into memory, whatever the size of the whole."""
_MOST_SLICES = 20_000
_WORTH_A_TASK = 50_000
_DAY = "day"
_TRUTH = "truth"
_FIRST, _LAST = "first", "last"
_SECOND = 1_000_000
# How many slices there are is known: Spark need not stop behind the shuffle to plan the rest again.
_FIXED_PLAN = {"spark.sql.adaptive.enabled": "false"}


class DatasetWriter:
    """A dataset that is being written, in a folder beside its final place."""

    def __init__(
        self, spark: SparkSession, storage: Storage, folder: str, begin: int | None, end: int | None
    ) -> None:
        self._spark = spark
        self._storage = storage
        self.folder = folder
        here = workers_are_here(spark.sparkContext.master or "")
        self.local_folder = storage.local_path(folder) if here else None
        """The folder as Python's workers can write to it; None if only Spark can."""
        self.begin = begin
        self.end = end
        self.streams: dict[str, StreamData] = {}
        self.truth: StreamData | None = None
        self.bad_lines: BadLines | None = None

    def write_stream(self, spec: StreamSpec, frame: DataFrame, expected_rows: int) -> StreamData:
        """Write a stream's rows in the order of time, a folder per day; `expected_rows` need not be exact.

        Each task takes one slice of time, so the names of the files sort like their rows. Rows outside of the
        dataset's time are left out.
        """
        from pyspark.sql import Observation
        from pyspark.sql.functions import expr

        assert spec.event_time is not None
        assert self.begin is not None
        assert self.end is not None
        time = f"unix_micros(`{spec.event_time}`)"
        # Small streams go in a few slices too, or all cores but one would wait for the last step.
        fewest = min(max(expected_rows // _WORTH_A_TASK, 1), 4)
        slices = min(max(math.ceil(expected_rows / SLICE_ROWS), fewest), _MOST_SLICES)
        width = max(-(-(self.end - self.begin) // slices), 1)
        names = [field.name for field in spec.fields]
        seen = Observation()
        frame = (
            frame.where(f"{time} >= {self.begin}L AND {time} < {self.end}L")
            .repartitionById(slices, expr(f"CAST(({time} - {self.begin}L) DIV {width}L AS INT)"))
            .withColumn(_DAY, expr(f"CAST(`{spec.event_time}` AS DATE)"))
            # All columns, so that rows of one time have one order too.
            .sortWithinPartitions(_DAY, spec.event_time, *names)
            # Seen where rows are written: these tasks count once, even if a lost one runs again.
            .observe(seen, *checksum_columns(names), *_range_columns(time))
        )
        with settings(self._spark, _FIXED_PLAN):
            frame.write.partitionBy(_DAY).parquet(f"{self.folder}/{spec.name}")
        found = seen.get
        rows, digits = checksum_of(found)
        return self._entry(spec, rows, digits, (found[_FIRST], found[_LAST]))

    def write_answer(self, name: str, fields: tuple[FieldSpec, ...], frame: DataFrame) -> StreamData:
        """Write rows that have no order, as an entry without time."""
        from pyspark.sql import Observation

        seen = Observation()
        frame.observe(seen, *checksum_columns(frame.columns)).write.parquet(f"{self.folder}/{name}")
        rows, digits = checksum_of(seen.get)
        self.streams[name] = StreamData(
            fields=fields, event_time=None, rows=rows, time_range=None, rate=None, checksum=digits, files=()
        )
        return self.streams[name]

    def add_stream(self, spec: StreamSpec, frame: DataFrame, expected_rows: int) -> StreamData:
        """Write a stream that is fed."""
        self.streams[spec.name] = self.write_stream(spec, frame, expected_rows)
        return self.streams[spec.name]

    def write_streams(
        self, streams: Mapping[StreamSpec, int], numbers: RDD[int], make: Make
    ) -> dict[str, StreamData]:
        """Write streams as `write_stream` does, all in one job; only where there is a `local_folder`."""
        assert self.local_folder is not None
        assert self.begin is not None
        assert self.end is not None
        sliced: list[Sliced] = []
        count = 0
        for spec, rows in streams.items():
            assert spec.event_time is not None
            slices = min(max(math.ceil(rows / SLICE_ROWS), 1), _MOST_SLICES)
            schema = arrow_schema(spec.schema())
            sliced.append(
                Sliced(
                    spec.name, schema, spec.event_time, self.begin, self.end, slices, rows // slices, count
                )
            )
            count += slices
        fewest = max(
            math.ceil(sum(streams.values()) / SLICE_ROWS), self._spark.sparkContext.defaultParallelism
        )
        written = write_together(numbers, make, sliced, self.local_folder, min(fewest, count))
        return {
            spec.name: self._entry_of_files(spec, [file for file in written if file.stream == spec.name])
            for spec in streams
        }

    def _entry_of_files(self, spec: StreamSpec, written: list[WrittenFile]) -> StreamData:
        digits = f"{sum(file.checksum for file in written) % (1 << 64):016x}"
        found = (min((f.first for f in written), default=0), max((f.last for f in written), default=0))
        entry = self._entry(spec, sum(file.rows for file in written), digits, found)
        files = sorted((DataFile(path=file.path, rows=file.rows) for file in written), key=lambda f: f.path)
        return entry.model_copy(update={"files": tuple(files)})

    def _entry(self, spec: StreamSpec, rows: int, digits: str, found: tuple[int, int]) -> StreamData:
        assert self.begin is not None
        assert self.end is not None
        return StreamData(
            fields=spec.fields,
            event_time=spec.event_time,
            rows=rows,
            time_range=found if rows else None,
            rate=round(rows * _SECOND / (self.end - self.begin), 6),
            checksum=digits,
            files=(),
        )

    def finish(self) -> None:
        """List the files of the streams that Spark wrote, with the rows that the files say they have."""
        entries = {**self.streams, **({} if self.truth is None else {_TRUTH: self.truth})}
        files = self._files([name for name, entry in entries.items() if entry.rows and not entry.files])
        for name, listed in files.items():
            entry = entries[name]
            found = tuple(sorted(listed, key=lambda file: file.path))
            written = sum(file.rows for file in found)
            if written != entry.rows:
                raise InvalidDataset(
                    f"stream '{name}': {entry.rows} rows went to '{self.folder}/{name}' and its files hold "
                    f"{written}: something else writes there, run the job again"
                )
            entries[name] = entry.model_copy(update={"files": found})
        if self.truth is not None:
            self.truth = entries.pop(_TRUTH)
        self.streams = entries

    def _files(self, names: list[str]) -> dict[str, list[DataFile]]:
        return {
            name: [
                DataFile(
                    path=f"{name}/{path}",
                    rows=parquet_rows(self._storage, f"{self.folder}/{name}/{path}", size),
                )
                for path, size in self._storage.files(f"{self.folder}/{name}")
            ]
            for name in names
        }

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
    """Give a writer; when the block ends well, the dataset appears in `folder` in one step.

    All is written to a hidden folder beside it, which goes if the block fails; after a kill it is left there,
    without a manifest. Raises InvalidDataset if the place is taken.
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


class Dataset:
    """A whole dataset, wherever Spark can read it."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self.folder = absolute(folder)
        self._spark = spark
        text = Storage(spark, self.folder).read(f"{self.folder}/{MANIFEST}")
        self.manifest = Manifest.parse(text, self.folder)

    def rows(self, name: str) -> DataFrame:
        """Return the rows of a stream, or of `truth`, in no order."""
        data = self.manifest.stream(name)
        schema = spark_schema(data.fields)
        paths = [f"{self.folder}/{file.path}" for file in data.files]
        if not paths:
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).parquet(*paths)

    def stream(self, name: str) -> DataFrame:
        """Return the rows of a stream with time and position, as plans read them."""
        data = self.manifest.stream(name)
        time = f"unix_micros(`{data.event_time}`)"
        # Files are slices of time by number, and within a slice by day.
        part = r"CAST(regexp_extract(_metadata.file_name, 'part-(\\d+)', 1) AS BIGINT)"
        day = f"CAST(unix_date(CAST(`{data.event_time}` AS DATE)) AS BIGINT)"
        place = f"array({part}, {day}, CAST(_metadata.row_index AS BIGINT))"
        if not data.files:
            place = "array(0L)"
        return self.rows(name).selectExpr("*", f"{time} AS `{TIME}`", f"{place} AS `{POSITION}`")

    def verify(self, name: str) -> None:
        """Count and hash a stream's rows again; raises InvalidDataset where they differ."""
        data = self.manifest.stream(name)
        rows, digits = checksum(self.rows(name))
        if (rows, digits) != (data.rows, data.checksum):
            raise InvalidDataset(
                f"stream '{name}' of '{self.folder}' has {rows} rows with checksum {digits}, and its "
                f"manifest says {data.rows} rows with {data.checksum}: make the dataset again"
            )


def spark_schema(fields: Sequence[FieldSpec]) -> str:
    """Return the columns of a stream as Spark declares them."""
    return ", ".join(
        f"`{field.name}` {SPARK_TYPES[field.type]}{'' if field.nullable else ' NOT NULL'}" for field in fields
    )
