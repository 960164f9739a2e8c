"""A query as admission control sees it: its class, its targets, and what it would cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mavstream_protocol.qos import QosSpec
from mavstream_protocol.queries import QuerySpec
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_server.optimizer.admission.cost_history import CostHistory, Demand
from mavstream_server.optimizer.admission.load import Arrivals


class Applicant(NamedTuple):
    """A query to be admitted."""

    name: str
    class_name: str
    qos: QosSpec
    streams: frozenset[str]
    demand: Demand


def applicant_of(
    spec: QuerySpec, plan: TypedPlan, costs: CostHistory | None, rates: Mapping[str, Arrivals]
) -> Applicant | None:
    """Assess a query at the arrival rates of its streams; None without costs."""
    if costs is None:
        return None
    streams = frozenset(source.stream for source in plan.sources)
    return Applicant(spec.name, spec.class_, spec.qos, streams, costs.assess(plan, rates))
