"""Cases for tests of rewriting: a plan, how its query is run, and its alternates."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.support.differential.cases import Case, random_case
from tests.support.differential.columns import ARRIVAL_BASE
from tests.support.differential.engine_runs import Variant
from tests.support.differential.families.rewritable import rewritable_case
from tests.support.differential.interleaving import TooLarge
from tests.support.differential.scripts import Row
from tests.support.scale import scaled

from mavstream_protocol.errors import InvalidPlan
from mavstream_protocol.plans.inference import check_one_time
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.queries import OnError
from mavstream_protocol.schema import Schema
from mavstream_protocol.typed_plan import StreamShape
from mavstream_server.planning.rewriting import Alternate, PlanMetrics, alternates
from mavstream_server.planning.run_options import RunOptions
from mavstream_server.scheduling.statistics import Statistics
from mavstream_server.testing import PlanRun, ScriptedStream, run_plan

LIMIT = scaled(8, 24)
MOST_ROWS = 2000


@dataclass(frozen=True, slots=True)
class RewriteCase:
    """A case and the options that its query runs with."""

    case: Case
    options: RunOptions

    @property
    def plan(self) -> Plan:
        """The plan as it was written."""
        return Plan.parse({"root": self.case.root, "nodes": self.case.nodes})

    def alternates(self, random: Random) -> list[Alternate]:
        """Return the alternate plans, with random metrics for some of the operators."""
        streams = {s.name: StreamShape(Schema(s.fields), s.event_time) for s in self.case.scripts}
        metrics = PlanMetrics(
            operators={name: _random_metrics(random) for name in self.plan.nodes if random.random() < 0.6}
        )
        options = self.options
        found = alternates(
            self.plan, streams, metrics, LIMIT, on_error=options.on_error, one_time=options.one_time
        )
        return [alternate for alternate in found if alternate.steps]


def rewrite_case(seed: str) -> RewriteCase:
    """Make a case: most have much to rewrite, others are drawn as for the comparison with the oracle."""
    random = Random(seed)
    case = rewritable_case(seed) if random.random() < 0.8 else random_case(seed)
    one_time = random.random() < 0.3
    if one_time:
        try:
            check_one_time(case.typed())
        except InvalidPlan:
            one_time = False
    # Rows before the start are missed; original and alternates must skip the same windows for them.
    start = random.choice((None, None, None, ARRIVAL_BASE + random.randrange(20_000)))
    return RewriteCase(case, RunOptions(random.choice(list(OnError)), one_time, start))


def _random_metrics(random: Random) -> Statistics:
    return Statistics(10_000.0, random.uniform(20, 2000), random.random(), 64.0, 1000)


def run(
    plan: Plan, streams: list[ScriptedStream], options: RunOptions, variant: Variant, most: int | None = None
) -> tuple[PlanRun, list[Row]]:
    """Run a plan to its end; returns the run and its answers, raises TooLarge."""
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
