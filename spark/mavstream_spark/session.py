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

# Settings that results depend on.
_SEMANTICS = {
    # All our times are UTC.
    "spark.sql.session.timeZone": "UTC",
    # A row that cannot be computed is null, which our own rules decide; nothing may throw.
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
# Settings that can only be given before Spark starts.
_STARTUP = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Without the checksum file that Hadoop would write for each local file.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.log.level": "ERROR",
}
# Java's optimising compiler runs on the cores that the tasks need. Ten times its thresholds keep it from
# compiling what runs for a few seconds only.
_LAZY_COMPILER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, which has started Java and knows the master."""


@contextmanager
def spark_session(
    master: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Yield a session on a master (default: that of spark-submit, else all local cores) and stop it.

    A session that already runs in this process, as in a notebook, is used and left running. Raises NoSpark
    if Java or PySpark is missing.
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
    """Apply settings to the jobs of a block and restore them; the session may not be ours."""
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
    """Start a session as `spark_session` does, for callers that stop it themselves."""
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
            # Workers must import the packages of this Python, not of the first one on the PATH.
            os.environ["PYSPARK_PYTHON"] = sys.executable
            # A user's own options come after these and win.
            builder = builder.config("spark.driver.defaultJavaOptions", _LAZY_COMPILER)
    for key, value in {**_STARTUP, **_SEMANTICS, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if not workers_are_here(spark.sparkContext.master or ""):
        ship_packages(spark.sparkContext)
    return spark
