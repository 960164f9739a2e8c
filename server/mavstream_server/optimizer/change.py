"""Changes: what the optimizer can have done, as data. Each has its opposite, so that it can be undone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from mavstream_protocol.plan import Plan
from mavstream_protocol.scheduling import SchedulerSettings


class PolicyChange(NamedTuple):
    """Let another policy decide."""

    settings: SchedulerSettings


class SheddingChange(NamedTuple):
    """Drop this share of the rows that a query reads; 0 for none."""

    query: str
    share: float


class PlanChange(NamedTuple):
    """Let a query go on with an equivalent plan."""

    query: str
    plan: Plan


class WeightChange(NamedTuple):
    """Let a query have more of its class, as much as so many others; 1 for no more than they."""

    query: str
    weight: int


class CombinedChange(NamedTuple):
    """Several changes, all of them or none."""

    changes: tuple[Change, ...]


Change: TypeAlias = PolicyChange | SheddingChange | WeightChange | PlanChange | CombinedChange


def combined(changes: Sequence[Change]) -> Change:
    """Return one change that makes all of them."""
    return changes[0] if len(changes) == 1 else CombinedChange(tuple(changes))


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a rule wants done, and why."""

    rule: str
    change: Change
    undo: Change
    what: str
    """In words."""
    why: str
    """With the numbers that led to it."""
    queries: tuple[str, ...]
    """For whom."""
    priority: int = 0
    """Of the class for whose sake it is: what less important ones miss by it does not count against it."""
