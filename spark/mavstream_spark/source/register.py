"""Registration of the data source with a Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mavstream_spark.shipping import ship_packages, workers_are_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `format("mavstream")` known to a session; workers on other machines are sent our packages."""
    from pyspark.sql.utils import is_remote

    from mavstream_spark.source.data_source import MavStreamSource

    if not is_remote() and not workers_are_here(spark.sparkContext.master or ""):
        ship_packages(spark.sparkContext)
    spark.dataSource.register(MavStreamSource)
