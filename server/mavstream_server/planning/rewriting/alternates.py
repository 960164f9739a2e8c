"""Alternates of a plan: equivalent plans with their expected costs, the cheapest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.queries import OnError
from mavstream_protocol.schema import Schema
from mavstream_protocol.typed_plan import StreamShape
from mavstream_server.planning.rewriting.costing.metrics import PlanMetrics
from mavstream_server.planning.rewriting.costing.model import CostModel
from mavstream_server.planning.rewriting.rule import RewriteRule, RewriteStep
from mavstream_server.planning.rewriting.rules.catalogue import RULES
from mavstream_server.planning.rewriting.search import Search
from mavstream_server.planning.rewriting.subject import Surroundings

LIMIT = 64


@dataclass(frozen=True, slots=True)
class Alternate:
    """A plan that gives the same answer, with its expected cost and memory."""

    plan: Plan
    cost: float
    """Nanoseconds of work per second."""
    memory: float
    """Bytes of state and queues."""
    steps: tuple[RewriteStep, ...]
    """The rules that led from the original to this plan; none for the original."""


def alternates(
    plan: Plan,
    streams: Mapping[str, StreamShape],
    metrics: PlanMetrics | None = None,
    limit: int = LIMIT,
    *,
    tables: Mapping[str, Schema] | None = None,
    on_error: OnError = OnError.NULL,
    one_time: bool = False,
    rules: Sequence[RewriteRule] = RULES,
) -> list[Alternate]:
    """Return up to `limit` plans that give the same answer, the given one included, the cheapest first.

    `metrics` are the metrics of the running plan, by its node names. Raises InvalidPlan if the plan is not
    valid. The answer consists of the rows with their columns, in order where the plan guarantees one; the
    counts of errors, late and unmatched rows may differ.
    """
    if limit < 1:
        raise ValueError(f"the original is always among the alternates, so limit is at least 1; got {limit}")
    surroundings = Surroundings(streams, tables or {}, on_error, one_time)
    model = CostModel(surroundings.types(plan), metrics or PlanMetrics())
    found = Search(surroundings, model, rules).run(plan, limit)
    rated = [Alternate(f.plan, f.assessment.work, f.assessment.memory, f.steps) for f in found]
    # At equal cost, fewer steps first: a running plan is not migrated to one that is no better.
    return sorted(rated, key=lambda alternate: (alternate.cost, alternate.memory, len(alternate.steps)))
