"""Plan choice: compares a running plan with the cheapest equivalent one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.queries import OnError
from mavstream_protocol.schema import Schema
from mavstream_protocol.typed_plan import StreamShape
from mavstream_server.planning.rewriting.alternates import LIMIT, Alternate, alternates
from mavstream_server.planning.rewriting.costing.metrics import PlanMetrics


@dataclass(frozen=True, slots=True)
class PlanSubject:
    """The input of a search for equivalent plans; small enough to be sent to another process."""

    plan: Plan
    streams: Mapping[str, StreamShape]
    tables: Mapping[str, Schema] = field(default_factory=dict)
    on_error: OnError = OnError.NULL
    one_time: bool = False


class PlanChoice(NamedTuple):
    """The running plan and the cheapest equivalent one, with costs from the same metrics."""

    running: Alternate
    cheapest: Alternate

    @property
    def saving(self) -> float:
        """The share of the work that the cheapest plan would save."""
        return 1 - self.cheapest.cost / self.running.cost if self.running.cost > 0 else 0.0

    @property
    def saving_of_memory(self) -> float:
        """The share of the memory that the cheapest plan would save."""
        return 1 - self.cheapest.memory / self.running.memory if self.running.memory > 0 else 0.0


def choose(subject: PlanSubject, metrics: PlanMetrics, limit: int = LIMIT) -> PlanChoice:
    """Return the running plan and the cheapest one, which may be the same. Takes tens of milliseconds."""
    found = alternates(
        subject.plan,
        subject.streams,
        metrics,
        limit,
        tables=subject.tables,
        on_error=subject.on_error,
        one_time=subject.one_time,
    )
    return PlanChoice(next(one for one in found if not one.steps), found[0])
