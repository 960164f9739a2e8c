"""Every alternate gives the answer of the original, for random plans, streams and batch sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from random import Random

import pytest
from tests.support.differential.comparison import assert_same_answer
from tests.support.differential.engine_runs import Variant, random_variants, written
from tests.support.differential.families.rewrite_cases import MOST_ROWS, RewriteCase, rewrite_case, run
from tests.support.differential.interleaving import TooLarge
from tests.support.scale import FULL, scaled

from mavstream_protocol.typed_plan import TypedAggregate, TypedExcept, TypedPlan
from mavstream_server.engine.states import QueryState
from mavstream_server.planning.rewriting import Alternate
from mavstream_server.planning.rewriting.rules.catalogue import RULES
from mavstream_server.testing import PlanRun

CHUNKS = scaled(8, 60)
CASES_PER_CHUNK = scaled(8, 20)
VARIANTS = scaled(1, 2)
EMPTY_EVERY = 10
"""One in this many cases may have no answer; the others are drawn until they have one."""


@pytest.fixture(scope="module")
def exercised() -> Iterator[Counter[str]]:
    """Rules that the alternates of this process exercised, printed at the end."""
    counted: Counter[str] = Counter()
    yield counted
    print(f"\n{counted['cases']} cases, {counted['alternates']} alternates, {counted['runs']} runs")
    for rule in RULES:
        print(f"  {rule.name:24} {counted[rule.name]:6}")
    if FULL and counted["cases"] >= 100:
        assert all(counted[rule.name] for rule in RULES)


def stamped(run: PlanRun) -> list[tuple[str, int]]:
    """Return the answers with their arrival times, from which their latency is computed."""
    arrivals = [int(arrival) for batch in run.sink.batches for arrival in batch.arrival]
    return sorted(zip(map(repr, run.answers()), arrivals, strict=True))


def windowed(plan: TypedPlan) -> bool:
    """Whether answers wait for a mark: their arrival is that of the mark, which depends on the run."""
    nodes = plan.nodes.values()
    return any(isinstance(n, TypedAggregate | TypedExcept) or getattr(n, "window", None) for n in nodes)


def compared(asked: RewriteCase, variants: Sequence[Variant], also_empty: bool) -> list[Alternate]:
    """Run the original and its alternates over the same logs; returns the alternates, none if unsuitable."""
    found: list[Alternate] = []
    for variant in variants:
        with written(asked.case, variant.cuts, variant.small_segments) as streams:
            try:
                # In short trains, so that a plan with too many rows is stopped early.
                short = replace(variant, train=min(variant.train, 64))
                first, expected = run(asked.plan, streams, asked.options, short, MOST_ROWS)
            except TooLarge:
                return []
            state = first.query.state
            if not (expected or also_empty or state is QueryState.FAILED):
                return []
            found = found or asked.alternates(Random(asked.case.seed))
            for alternate in found:
                steps = "\n".join(map(str, alternate.steps))
                how = f"{asked.options}\n{variant}\n{steps}\n{alternate.plan!r}"
                # Another train size, so that the alternate's batches differ.
                other, got = run(
                    alternate.plan, streams, asked.options, replace(variant, train=variant.train + 3)
                )
                assert other.query.state is state, f"{how}\n{asked.case.description()}"
                if state is not QueryState.FAILED:  # the answers of a failed query may end at any row
                    assert_same_answer(asked.case, expected, got, how)
                    if not windowed(asked.case.typed()):
                        assert stamped(other) == stamped(first), f"{how}\n{asked.case.description()}"
    return found


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_alternate_gives_the_same_answer(chunk: int, exercised: Counter[str]) -> None:
    for number in range(chunk * CASES_PER_CHUNK, (chunk + 1) * CASES_PER_CHUNK):
        variants = random_variants(Random(number), VARIANTS)
        for attempt in count():
            found = compared(
                rewrite_case(f"alternates {number}.{attempt}"), variants, number % EMPTY_EVERY == 0
            )
            if found:
                exercised.update({"cases": 1, "alternates": len(found), "runs": VARIANTS * len(found)})
                exercised.update({step.rule for alternate in found for step in alternate.steps})
                break
