"""The data source `mavstream` as Spark knows it."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from mavstream_spark.errors import InvalidJob
from mavstream_spark.source.connection import Connection
from mavstream_spark.source.options import read_options, write_options
from mavstream_spark.source.readers import BatchReader, StreamReader
from mavstream_spark.source.schemas import spark_of
from mavstream_spark.source.stored_rows import StoredRows
from mavstream_spark.source.writers import BatchWriter, StreamWriter


class MavStreamSource(DataSource):
    """Streams of a MavStream server, and the results of its queries."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "mavstream"

    def schema(self) -> StructType:
        """Return the columns of the stream or query, as the server says."""
        rows = self._stored()
        try:
            return spark_of(rows.extent().schema)
        finally:
            rows.connection.close()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch."""
        return BatchReader(self._stored(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a stream."""
        rows = self._stored()
        if rows.options.stop != "latest":
            raise InvalidJob("option 'to' is for spark.read: end a stream with trigger(availableNow=True)")
        return StreamReader(rows, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch."""
        return BatchWriter(write_options(self.options, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer of a stream."""
        return StreamWriter(write_options(self.options, overwrite=overwrite))

    def _stored(self) -> StoredRows:
        options = read_options(self.options)
        return StoredRows(options, Connection(options.server))
