"""Migration never changes an answer: random plans and alternates, at any moment, under any policy."""

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
from tests.support.differential.scripts import Row
from tests.support.scale import FULL, scaled

from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_server.engine.migration.migration import MigrationRefused
from mavstream_server.engine.query import MigrationStage, RunningQuery
from mavstream_server.engine.states import QueryState
from mavstream_server.scheduling.registry import POLICIES
from mavstream_server.testing import PlanRun, ScriptedStream, run_plan

CHUNKS = scaled(2, 40)
CASES_PER_CHUNK = scaled(4, 25)
RUNS = scaled(3, 6)


@pytest.fixture(scope="module")
def exercised() -> Iterator[Counter[str]]:
    """Number and outcomes of migrations, printed at the end."""
    counted: Counter[str] = Counter()
    yield counted
    print(f"\n{dict(counted)}")
    if FULL:
        assert counted["migrated"] > 10 * counted["cases"] > 0
        assert counted["beside the old operators"] > counted["cases"]


def migrated(
    asked: RewriteCase,
    plans: Sequence[TypedPlan],
    streams: list[ScriptedStream],
    variant: Variant,
    random: Random,
    exercised: Counter[str],
) -> PlanRun:
    """Run a query to its end while it migrates to other plans, and back, every few steps.

    Sometimes another policy takes over, with new and old operators, or the query changes its class.
    """
    plan = asked.plan
    made = run_plan(
        plan.model_dump(mode="json", exclude_none=True)["nodes"],
        plan.root,
        streams,
        policy=variant.policy,
        policy_options=dict(variant.options),
        train=variant.train,
        options=asked.options,
    )
    query, due = made.query, 0
    warming = False
    for step in count():
        if step == due and query.state is QueryState.RUNNING:
            due = step + random.choice((1, 2, 4, 8, 16))
            if query.migrations.stage is None or random.random() < 0.2:
                try:
                    made.engine.migrate(query.id, random.choice(plans))
                except MigrationRefused:
                    exercised["refused"] += 1
            if random.random() < 0.1:
                made.engine.switch(random.choice(sorted(POLICIES)))
            elif random.random() < 0.1:
                made.engine.changes.reclass(query.id, random.choice(("default", "other")))
        if not made.engine.step():
            break
        check(query)
        assert "another time" not in (query.migrations.note or "")
        if query.migrations.stage is not MigrationStage.WARMING and warming:
            exercised["beside the old operators"] += query.migrations.note is None
        warming = query.migrations.stage is MigrationStage.WARMING
    exercised["steps"] += step
    exercised["migrated"] += query.migrations.count
    return made


def check(query: RunningQuery) -> None:
    """Assert that queues and account agree between slices, and that the policy knows all operators."""
    queues = [queue for task in query.tasks.values() for queue in task.work.inputs]
    assert sum(queue.rows for queue in queues) == query.network.account.rows
    shown = {id(operator) for operator in query.operators}
    assert {id(task) for task in query.tasks.values()} <= shown


def typed(plan: Plan, streams: Sequence[ScriptedStream]) -> TypedPlan:
    return infer(plan, {stream.name: stream.shape for stream in streams})


def compared(seed: str, number: int, exercised: Counter[str]) -> bool:
    """Run a case with and without migrations over the same logs; returns whether it was suitable."""
    asked, random = rewrite_case(seed), Random(seed)
    plans: list[Plan] = []
    variants = [replace(v, train=min(v.train, 3)) for v in random_variants(Random(number), RUNS)]
    for variant in variants:
        with written(asked.case, variant.cuts, variant.small_segments) as streams:
            try:
                first, expected = run(asked.plan, streams, asked.options, variant, MOST_ROWS)
            except TooLarge:
                return False
            if len(expected) < 3 and first.query.state is not QueryState.FAILED:
                return False
            plans = plans or [alternate.plan for alternate in asked.alternates(random)]
            if not plans:
                return False
            all_plans = [typed(plan, streams) for plan in (asked.plan, *plans)]
            other = migrated(asked, all_plans, streams, variant, random, exercised)
            same(asked, first, expected, other, f"seed {seed!r}, {variant}")
    return True


def same(asked: RewriteCase, first: PlanRun, expected: list[Row], other: PlanRun, how: str) -> None:
    context = f"{how}\n{asked.options}\n{asked.case.description()}"
    assert other.query.state is first.query.state, f"{other.query.reason}\n{context}"
    if first.query.state is QueryState.FAILED:
        return  # the answers of a failed query may end at any row
    assert_same_answer(asked.case, expected, other.answers(), how)
    assert other.sink.offset == first.sink.offset, context
    if not ends_by_itself(asked):
        assert other.query.rows_in == first.query.rows_in, context
    assert other.query.output.latency.count == first.query.output.latency.count, context


def ends_by_itself(asked: RewriteCase) -> bool:
    """Whether the query may end before its streams: the rows it has read by then depend on the run."""
    windows = [getattr(node, "window", None) for node in asked.case.typed().nodes.values()]
    return asked.options.one_time or any(window and window.until is not None for window in windows)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_answer_does_not_depend_on_migrations(chunk: int, exercised: Counter[str]) -> None:
    for number in range(chunk * CASES_PER_CHUNK, (chunk + 1) * CASES_PER_CHUNK):
        for attempt in count():
            if compared(f"swaps {number}.{attempt}", number, exercised):
                exercised["cases"] += 1
                break
