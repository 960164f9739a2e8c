"""Running plans: what a query's plan was swapped for since its engine started it.

Kept in memory beside the registered plan: a query that is instantiated again runs as it was registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import NamedTuple

from mavstream_protocol.plan import Plan
from mavstream_protocol.queries import Mode, QuerySpec
from mavstream_protocol.schema import Schema
from mavstream_protocol.typed_plan import StreamShape, TypedPlan
from mavstream_server.core.metrics import QueryMetrics
from mavstream_server.planning.rewriting.choice import PlanSubject

_KEPT = 8
"""Plans remembered per query: figures that are half a second old may still tell of one that went."""

Shapes = Mapping[str, StreamShape]
Tables = Mapping[str, Schema]

REGISTERED = 0
"""The version of the plan that was registered."""


class RunningPlan(NamedTuple):
    """A plan that was asked for."""

    plan: Plan
    typed: TypedPlan


class SearchedQuery(NamedTuple):
    """A running query with its figures, as whoever looks for a better plan must know it."""

    id: str
    subject: PlanSubject
    sources: dict[str, str]
    """The streams that its sources read, by node."""
    stats: QueryMetrics


def searched(
    id_: str, spec: QuerySpec, plan: RunningPlan, stats: QueryMetrics, shapes: Shapes, tables: Tables
) -> SearchedQuery:
    """Return a query that runs a plan; of streams and tables, it takes those that it reads."""
    sources = {node.name: node.stream for node in plan.typed.sources}
    subject = PlanSubject(
        plan.plan,
        {name: shapes[name] for name in sources.values()},
        {name: tables[name] for name in plan.typed.tables},
        spec.on_error,
        spec.mode is Mode.ONE_TIME,
    )
    return SearchedQuery(id_, subject, sources, stats)


class RunningPlans:
    """The plans that one query was to go on with, by the versions under which its engine tells of them."""

    def __init__(self) -> None:
        self._plans: dict[int, RunningPlan] = {}
        self._numbers = count(REGISTERED + 1)

    def add(self, plan: Plan, typed: TypedPlan) -> int:
        """Remember a plan; returns its version."""
        version = next(self._numbers)
        self._plans[version] = RunningPlan(plan, typed)
        while len(self._plans) > _KEPT:
            del self._plans[next(iter(self._plans))]
        return version

    def forget(self, version: int) -> None:
        """Drop a plan that was refused."""
        self._plans.pop(version, None)

    def running(self, stats: QueryMetrics | None) -> RunningPlan | None:
        """Return what runs according to figures of the query's present epoch; None: as registered."""
        return None if stats is None else self._plans.get(stats.plan_version)
