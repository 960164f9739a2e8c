"""Alternates of a plan: equivalent plans with what they are expected to cost, the cheapest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mavstream_protocol.plan import Plan
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
    """A plan that gives the same answer, and what it is expected to need."""

    plan: Plan
    cost: float
    """Nanoseconds of work per second."""
    memory: float
    """Bytes of state and queues."""
    steps: tuple[RewriteStep, ...]
    """How it came about; none for the original."""


def alternates(
    plan: Plan,
    streams: Mapping[str, StreamShape],
    figures: PlanMetrics | None = None,
    limit: int = LIMIT,
    *,
    tables: Mapping[str, Schema] | None = None,
    on_error: OnError = OnError.NULL,
    one_time: bool = False,
    rules: Sequence[RewriteRule] = RULES,
) -> list[Alternate]:
    """Return up to `limit` plans with the answer of this one, itself among them, the cheapest first.

    `figures` are those of the running plan, by its node names. Raises InvalidPlan if the plan is wrong.
    The answer is the rows with their columns, in order where the plan promises one; how many errors, late and
    unmatched rows are counted may differ.
    """
    if limit < 1:
        raise ValueError(f"the original is always among the alternates, so limit is at least 1; came {limit}")
    surroundings = Surroundings(streams, tables or {}, on_error, one_time)
    model = CostModel(surroundings.types(plan), figures or PlanMetrics())
    found = Search(surroundings, model, rules).run(plan, limit)
    made = [Alternate(f.plan, f.assessment.work, f.assessment.memory, f.steps) for f in found]
    # Fewer steps first where all else is equal: nobody swaps a plan for one that is no better.
    return sorted(made, key=lambda alternate: (alternate.cost, alternate.memory, len(alternate.steps)))
