"""Micro-batches on Spark give the answers of the engine: random plans, late rows, several producers."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

import pytest
from tests.support.differential.cases import Case, random_case
from tests.support.differential.comparison import difference
from tests.support.differential.engine_runs import Variant, run_case, written
from tests.support.differential.oracle import Oracle, Unanswerable
from tests.support.scale import scaled
from tests.support.spark.micro_batches import StoredStream, answered_in_batches

from mavstream_protocol import InvalidPlan
from mavstream_protocol.backends import refused_by_runner
from mavstream_protocol.typed_plan import TypedPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ("tests.support.spark.fixtures",)
pytestmark = pytest.mark.xdist_group("spark")

CASES = scaled(3, 120)
MOST_OPERATORS = 4
"""Larger plans spend their time in Spark's optimizer."""


def cases(first: int) -> Iterator[tuple[Case, TypedPlan]]:
    """Yield cases with answers that a runner does not refuse, most of them with a window or a join."""
    oracle, seed = Oracle(), first
    while True:
        seed += 1
        case = random_case(f"runner.{seed}")
        try:
            expected = oracle.answer(case)
        except (Unanswerable, InvalidPlan):
            continue
        plan = case.typed()
        small = sum(node.has_operator for node in plan.nodes.values()) <= MOST_OPERATORS + 2
        stateful = any(node.stateful for node in plan.nodes.values())
        if expected and small and (stateful or seed % 10 == 0) and not refused_by_runner(plan):
            yield case, plan


def test_random_plans_are_answered_in_batches_as_by_the_engine(spark: SparkSession) -> None:
    found = cases(0)
    for _ in range(CASES):
        case, plan = next(found)
        expected, random = run_case(case, Variant()), Random(case.seed)
        with written(case, random.randrange(1000)) as streams:
            stored = [StoredStream(stream) for stream in streams]
        cuts = sorted(random.random() for _ in range(random.choice((1, 2, 4))))
        ends = [{one.name: int(cut * one.rows.num_rows) for one in stored} for cut in cuts]
        got = answered_in_batches(spark, plan, stored, ends)
        missing, extra = difference(expected, got)
        report = f"cuts {ends}\n{case.description()}"
        assert not missing, f"missing {missing[:5]}, too many {extra[:5]}\n{report}"
        assert not extra, f"too many {extra[:5]}\n{report}"
