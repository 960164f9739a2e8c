"""Spark sessions with the settings that our jobs rely on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mavstream_spark.errors import NoSpark
from mavstream_spark.java import check_java
from mavstream_spark.shipping import ship_packages, workers_are_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What the answers depend on; set on every session, whoever started it.
_MEANING = {
    # All our times are UTC.
    "spark.sql.session.timeZone": "UTC",
    # A row that fails is null, and our own rules say which rows do; nothing may throw.
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
# What can only be said before Spark starts.
_START = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Without the checksum files that Hadoop would lay beside each local file.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.log.level": "ERROR",
}
# Java's optimising compiler runs on the cores that the rows need: it shall take its time (ten times its
# thresholds) and leave alone what runs for a few seconds only.
_PATIENT_JAVA = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, which has started Java and knows the master."""


@contextmanager
def spark_session(
    master: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Give a session on a master (default: what spark-submit says, else all local cores), and stop it.

    A session that runs already in this process is used and left running, as in a notebook. Raises NoSpark
    where Java or PySpark is missing.
    """
    running = _running_session()
    spark = running or start_session(master, settings)
    try:
        yield spark
    finally:
        if running is None:
            spark.stop()


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Set what holds for the jobs of a block; the session may be somebody else's."""
    before = {key: str(spark.conf.get(key)) for key in values}
    try:
        for key, value in values.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            spark.conf.set(key, old)


def _running_session() -> SparkSession | None:
    if "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def start_session(master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """As `spark_session`, for callers that stop it themselves."""
    submitted = _SUBMITTED in os.environ
    if not submitted:
        check_java()
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise NoSpark(f"PySpark is not installed ({error}): pip install 'mavstream[spark]'") from None
    builder = SparkSession.builder.appName("mavstream data")
    if master is not None or not submitted:
        master = master or "local[*]"
        builder = builder.master(master)
        if master.startswith("local"):
            # The workers must find the packages of this Python, not of the first one on the PATH.
            os.environ["PYSPARK_PYTHON"] = sys.executable
            # Others' options stand behind these and win.
            builder = builder.config("spark.driver.defaultJavaOptions", _PATIENT_JAVA)
    for key, value in {**_START, **_MEANING, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if not workers_are_here(spark.sparkContext.master or ""):
        ship_packages(spark.sparkContext)
    return spark
