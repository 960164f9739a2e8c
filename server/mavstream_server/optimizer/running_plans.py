"""Running plans: the plans that a query was migrated to since its engine started it.

In memory only: a query that is restarted runs its registered plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import NamedTuple

from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.queries import Mode, QuerySpec
from mavstream_protocol.schema import Schema
from mavstream_protocol.typed_plan import StreamShape, TypedPlan
from mavstream_server.core.metrics import QueryMetrics
from mavstream_server.planning.rewriting.choice import PlanSubject

_MAX_PLANS = 8
"""Plans stored per query: metrics that are half a second old may still refer to an earlier one."""

Shapes = Mapping[str, StreamShape]
Tables = Mapping[str, Schema]

REGISTERED = 0
"""Version number of the plan that a query is started with, if that is the registered one."""


class RunningPlan(NamedTuple):
    """A plan that a query was asked to migrate to."""

    plan: Plan
    typed: TypedPlan


class SearchedQuery(NamedTuple):
    """A running query with its metrics, as input of the plan searcher."""

    id: str
    subject: PlanSubject
    sources: dict[str, str]
    """Stream names by source node."""
    metrics: QueryMetrics


def searched(
    id_: str, spec: QuerySpec, plan: RunningPlan, metrics: QueryMetrics, shapes: Shapes, tables: Tables
) -> SearchedQuery:
    """Return the search input for a query that runs this plan, with the streams and tables it reads."""
    sources = {node.name: node.stream for node in plan.typed.sources}
    subject = PlanSubject(
        plan.plan,
        # The streams may have got more fields since, which the query does not see.
        {node.stream: replace(shapes[node.stream], schema=node.schema) for node in plan.typed.sources},
        {name: tables[name] for name in plan.typed.tables},
        spec.on_error,
        spec.mode is Mode.ONE_TIME,
    )
    return SearchedQuery(id_, subject, sources, metrics)


class RunningPlans:
    """Plans that a query was asked to migrate to, by the version that its engine reports."""

    def __init__(self) -> None:
        self.registered = REGISTERED
        """The version of the registered plan: not the first one if it has replaced another in this engine."""
        self._plans: dict[int, RunningPlan] = {}
        self._numbers = count(REGISTERED + 1)

    def add(self, plan: Plan, typed: TypedPlan) -> int:
        """Add a plan and return its version."""
        version = next(self._numbers)
        self._plans[version] = RunningPlan(plan, typed)
        while len(self._plans) > _MAX_PLANS:
            del self._plans[next(iter(self._plans))]
        return version

    def forget(self, version: int) -> None:
        """Remove a plan that the engine refused."""
        self._plans.pop(version, None)

    def running(self, metrics: QueryMetrics | None) -> RunningPlan | None:
        """Return the plan that metrics of the current epoch report, or None for the registered one."""
        if metrics is None or metrics.plan_version == self.registered:
            return None
        return self._plans.get(metrics.plan_version)
