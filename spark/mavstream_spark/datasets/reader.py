"""Datasets read by Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mavstream_protocol import FieldSpec
from mavstream_protocol.manifest import MANIFEST, InvalidDataset, Manifest
from mavstream_spark.datasets.checksum import checksum
from mavstream_spark.datasets.publication import absolute
from mavstream_spark.datasets.storage import Storage
from mavstream_spark.plans.sql import SPARK_TYPES
from mavstream_spark.plans.windows import POSITION, TIME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Dataset:
    """A complete dataset on any storage that Spark can read; raises InvalidDataset if it has no manifest."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self.folder = absolute(folder)
        self._spark = spark
        text = Storage(spark, self.folder).read(f"{self.folder}/{MANIFEST}")
        self.manifest = Manifest.parse(text, self.folder)

    def rows(self, name: str) -> DataFrame:
        """Return the rows of a stream, or of `truth`, in no order."""
        data = self.manifest.stream(name)
        schema = _spark_schema(data.fields)
        paths = [f"{self.folder}/{file.path}" for file in data.files]
        if not paths:
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).parquet(*paths)

    def stream(self, name: str) -> DataFrame:
        """Return the rows of a stream with the columns `#time` and `#position` that plans need."""
        data = self.manifest.stream(name)
        time = f"unix_micros(`{data.event_time}`)"
        # Files are slices of time by number, and within a slice by day.
        part = r"CAST(regexp_extract(_metadata.file_name, 'part-(\\d+)', 1) AS BIGINT)"
        day = f"CAST(unix_date(CAST(`{data.event_time}` AS DATE)) AS BIGINT)"
        position = f"array({part}, {day}, CAST(_metadata.row_index AS BIGINT))"
        if not data.files:
            position = "array(0L)"
        return self.rows(name).selectExpr("*", f"{time} AS `{TIME}`", f"{position} AS `{POSITION}`")

    def verify(self, name: str) -> None:
        """Count and hash the rows of a stream; raises InvalidDataset if the manifest says otherwise."""
        data = self.manifest.stream(name)
        rows, digits = checksum(self.rows(name))
        if (rows, digits) != (data.rows, data.checksum):
            raise InvalidDataset(
                f"stream '{name}' of '{self.folder}' has {rows} rows with checksum {digits}, but its "
                f"manifest says {data.rows} rows with {data.checksum}: make the dataset again"
            )


def _spark_schema(fields: Sequence[FieldSpec]) -> str:
    return ", ".join(
        f"`{field.name}` {SPARK_TYPES[field.type]}{'' if field.nullable else ' NOT NULL'}" for field in fields
    )
