"""One Spark session for all tests of a process, since it is slow to start."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql.functions import expr

from mavstream_spark.datasets.reader import Dataset
from mavstream_spark.datasets.writer import new_dataset
from mavstream_spark.generate.homes import HomesOptions, generate_homes
from mavstream_spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Short jobs gain nothing from Java's optimising compiler, which would use the other core.
SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
}
# With this seed the first home has an intrusion and the second one a fire.
SEED = 11
RUSH_BEGIN = 10
"""The hour at which the rush begins; it contains both anomalies."""
HOMES = HomesOptions(homes=2, days=1, seed=SEED, anomalies=1.0)


@cache
def shared_session() -> SparkSession:
    os.environ.setdefault("SPARK_HOME", str(_home()))
    spark = start_session("local[2]", SETTINGS)
    atexit.register(spark.stop)
    return spark


def _home() -> Path:
    """Return PySpark's own Spark without its archive of Python modules, which every worker would compile.

    A worker of a streaming source has ten seconds to start, which a busy machine does not always keep.
    """
    home = shared_folder() / "spark"
    home.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        if part.name != "python":
            (home / part.name).symlink_to(part)
    return home


@cache
def shared_homes() -> Path:
    """Return a small dataset: two homes on one day, with an anomaly in each."""
    generate_homes(shared_session(), str(shared_folder() / "homes"), HOMES)
    return shared_folder() / "homes"


@cache
def shared_rush() -> Path:
    """Return ten hours of that day compressed to 15 minutes, so that rows share the demo's short windows."""
    spark = shared_session()
    homes = Dataset(spark, str(shared_homes()))
    begin = homes.manifest.begin
    assert begin is not None
    folder = shared_folder() / "rush"
    with new_dataset(spark, str(folder), "homes", {}, begin=begin, end=begin + 900_000_000) as writer:
        for name, data in homes.manifest.streams.items():
            since = f"unix_micros(at) - {begin}L - {RUSH_BEGIN * 3_600_000_000}L"
            rows = homes.rows(name).withColumn("at", expr(f"timestamp_micros({begin}L + ({since}) DIV 40)"))
            writer.write_frame(data.spec(name), rows, data.rows)
    return folder


@cache
def shared_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="mavstream-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
