"""Changes that the optimizer can make, as data; each can be undone by an opposite change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.scheduling import SchedulerSettings


class PolicyChange(NamedTuple):
    """Switch the scheduling policy."""

    settings: SchedulerSettings


class SheddingChange(NamedTuple):
    """Shed this share of the rows that a query reads; 0 stops shedding."""

    query: str
    share: float


class PlanChange(NamedTuple):
    """Migrate a running query to an equivalent plan."""

    query: str
    plan: Plan


class WeightChange(NamedTuple):
    """Set the weight of a query within its class: as if it were that many queries; 1 is normal."""

    query: str
    weight: int


class CombinedChange(NamedTuple):
    """Several changes, applied all or none."""

    changes: tuple[Change, ...]


Change: TypeAlias = PolicyChange | SheddingChange | WeightChange | PlanChange | CombinedChange


def combined(changes: Sequence[Change]) -> Change:
    """Return a single change that makes all the given ones."""
    return changes[0] if len(changes) == 1 else CombinedChange(tuple(changes))


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change that a rule proposes, with its reason."""

    rule: str
    change: Change
    undo: Change
    what: str
    """Description of the change, for people."""
    why: str
    """Reason, with the measurements that led to it."""
    queries: tuple[str, ...]
    """Ids of the queries that the change is meant to help."""
    priority: int = 0
    """Priority of the class that the change is meant to help: misses of less important classes do not count
    against it.
    """
