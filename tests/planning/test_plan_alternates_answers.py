"""Every alternate gives the answer of the original: generated plans and streams, however batches are cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from random import Random

import pytest
from tests.engine.test_plan_invariance import assert_same
from tests.support.differential.cases import Case, random_case
from tests.support.differential.columns import ARRIVAL_BASE
from tests.support.differential.engine_runs import Variant, random_variants, written
from tests.support.differential.families.rewritable import rewritable_case
from tests.support.differential.scripts import Row
from tests.support.scale import FULL, scaled

from mavstream_protocol.errors import InvalidPlan
from mavstream_protocol.plans.inference import check_one_time
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.queries import OnError
from mavstream_protocol.schema import Schema
from mavstream_protocol.typed_plan import StreamShape, TypedAggregate, TypedExcept, TypedPlan
from mavstream_server.engine.states import QueryState
from mavstream_server.planning.instantiator import RunOptions
from mavstream_server.planning.rewriting import Alternate, PlanMetrics, alternates
from mavstream_server.planning.rewriting.rules.catalogue import RULES
from mavstream_server.scheduling.statistics import Statistics
from mavstream_server.testing import PlanRun, ScriptedStream, run_plan

CHUNKS = scaled(8, 60)
CASES_PER_CHUNK = scaled(8, 20)
LIMIT = scaled(8, 24)
VARIANTS = scaled(1, 2)
MOST_ROWS = 2000
EMPTY_EVERY = 10
"""One in so many cases may have no answer; the others are drawn until there is one."""


class TooLarge(Exception):
    """A case with more rows between its operators than is of use."""


@dataclass(frozen=True, slots=True)
class Question:
    """A case, and how its query is to be run."""

    case: Case
    options: RunOptions

    @property
    def plan(self) -> Plan:
        """The plan as it was written."""
        return Plan.parse({"root": self.case.root, "nodes": self.case.nodes})

    def alternates(self, random: Random) -> list[Alternate]:
        """Return the other plans, for figures that are invented for some of the operators."""
        streams = {s.name: StreamShape(Schema(s.fields), s.event_time) for s in self.case.scripts}
        figures = PlanMetrics(
            operators={name: invented(random) for name in self.plan.nodes if random.random() < 0.6}
        )
        options = self.options
        found = alternates(
            self.plan, streams, figures, LIMIT, on_error=options.on_error, one_time=options.one_time
        )
        return [alternate for alternate in found if alternate.steps]


@pytest.fixture(scope="module")
def exercised() -> Iterator[Counter[str]]:
    """What the alternates of this process exercised, printed at the end."""
    counted: Counter[str] = Counter()
    yield counted
    print(f"\n{counted['cases']} cases, {counted['alternates']} alternates, {counted['runs']} runs")
    for rule in RULES:
        print(f"  {rule.name:24} {counted[rule.name]:6}")
    if FULL and counted["cases"] >= 100:
        assert all(counted[rule.name] for rule in RULES)


def question(seed: str) -> Question:
    """Make a case: most have much to rewrite, some are those that are compared with the oracle."""
    random = Random(seed)
    case = rewritable_case(seed) if random.random() < 0.8 else random_case(seed)
    one_time = random.random() < 0.3
    if one_time:
        try:
            check_one_time(case.typed())
        except InvalidPlan:
            one_time = False
    # Rows before the start are missed, so windows that they could have been in must be skipped alike.
    start = random.choice((None, None, None, ARRIVAL_BASE + random.randrange(20_000)))
    return Question(case, RunOptions(random.choice(list(OnError)), one_time, start))


def invented(random: Random) -> Statistics:
    return Statistics(10_000.0, random.uniform(20, 2000), random.random(), 64.0, 1000)


def run(
    plan: Plan, streams: list[ScriptedStream], options: RunOptions, variant: Variant, most: int | None = None
) -> tuple[PlanRun, list[Row]]:
    """Return a query that has ended, and what it answered; raises TooLarge."""
    run = run_plan(
        plan.model_dump(mode="json", exclude_none=True)["nodes"],
        plan.root,
        streams,
        policy=variant.policy,
        policy_options=dict(variant.options),
        train=variant.train,
        options=options,
    )
    operators = run.query.network.operators.values()
    while run.engine.step():
        if most is not None and any(operator.rows_out > most for operator in operators):
            raise TooLarge
    return run, run.answers()


def stamped(run: PlanRun) -> list[tuple[str, int]]:
    """Return the answers with their times of arrival, from which their latency is told."""
    arrivals = [int(arrival) for batch in run.sink.batches for arrival in batch.arrival]
    return sorted(zip(map(repr, run.answers()), arrivals, strict=True))


def windowed(plan: TypedPlan) -> bool:
    """Whether answers wait for a mark: then its arrival counts, and which mark it is depends on the run."""
    nodes = plan.nodes.values()
    return any(isinstance(n, TypedAggregate | TypedExcept) or getattr(n, "window", None) for n in nodes)


def compared(asked: Question, variants: Sequence[Variant], also_empty: bool) -> list[Alternate]:
    """Run the original and its alternates over the same logs; returns these, none if it is not worth it."""
    found: list[Alternate] = []
    for variant in variants:
        with written(asked.case, variant.cuts, variant.small_segments) as streams:
            try:
                # In short trains, so that a plan that gives too much is given up in time.
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
                # Other trains, so that the alternate's batches are cut elsewhere.
                other, got = run(
                    alternate.plan, streams, asked.options, replace(variant, train=variant.train + 3)
                )
                assert other.query.state is state, f"{how}\n{asked.case.story()}"
                if state is not QueryState.FAILED:  # what a failed query answered may end at any row
                    assert_same(asked.case, expected, got, how)
                    if not windowed(asked.case.typed()):
                        assert stamped(other) == stamped(first), f"{how}\n{asked.case.story()}"
    return found


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_alternate_gives_the_same_answer(chunk: int, exercised: Counter[str]) -> None:
    for number in range(chunk * CASES_PER_CHUNK, (chunk + 1) * CASES_PER_CHUNK):
        variants = random_variants(Random(number), VARIANTS)
        for attempt in count():
            found = compared(question(f"alternates {number}.{attempt}"), variants, number % EMPTY_EVERY == 0)
            if found:
                exercised.update({"cases": 1, "alternates": len(found), "runs": VARIANTS * len(found)})
                exercised.update({step.rule for alternate in found for step in alternate.steps})
                break
