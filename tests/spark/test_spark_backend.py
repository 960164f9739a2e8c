"""What EXPLAIN says about Spark is what the plan compiler for Spark does."""

from __future__ import annotations

from mavstream_protocol.backends import SPARK_NODES
from mavstream_spark.plans.compiler import FRAMES


def test_the_nodes_that_spark_supports_are_those_of_its_plan_compiler() -> None:
    assert set(FRAMES) == SPARK_NODES
