"""A query as admission control sees it: its class, its targets, and what it would cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mavstream_protocol.qos import QosSpec
from mavstream_protocol.queries import QueryBackend, QuerySpec
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_server.optimizer.admission.cost_history import CostHistory, Demand
from mavstream_server.optimizer.admission.load import Arrivals
from mavstream_server.queries.planning.validation import could_move


class Applicant(NamedTuple):
    """A query to be admitted."""

    name: str
    class_name: str
    qos: QosSpec
    streams: frozenset[str]
    demand: Demand
    fits_spark: bool
    """Whether it could have backend `spark` instead, and keep its latency target there."""


def applicant_of(
    spec: QuerySpec, plan: TypedPlan, costs: CostHistory | None, rates: Mapping[str, Arrivals]
) -> Applicant | None:
    """Assess a query at the arrival rates of its streams; None without costs, or if it runs elsewhere."""
    if costs is None or spec.backend is not QueryBackend.EMBEDDED:
        return None
    streams = frozenset(source.stream for source in plan.sources)
    demand = costs.assess(plan, rates)
    return Applicant(spec.name, spec.class_, spec.qos, streams, demand, could_move(spec, plan))
