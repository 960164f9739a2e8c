"""Fixtures of the shared Spark session and its datasets; test modules name this as a plugin."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.spark.session import shared_homes, shared_rush, shared_session

from mavstream_spark.errors import NoSpark
from mavstream_spark.java import check_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    try:
        check_java()
    except NoSpark as missing:
        # Only the data jobs need Java. In CI it must be there.
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))
    return shared_session()


@pytest.fixture(scope="session")
def homes(spark: SparkSession) -> Path:
    return shared_homes()


@pytest.fixture(scope="session")
def rush(spark: SparkSession) -> Path:
    return shared_rush()
