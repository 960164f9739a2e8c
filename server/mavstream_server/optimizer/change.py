"""Changes that the optimizer can make, as data; each can be undone by an opposite change.

Most are messages to the engine. `PlanChange` is not `MigratePlan`, which has the typed plan and its version:
the query service adds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from mavstream_protocol.plans.plan import Plan
from mavstream_server.engine.process.messages import ShedRows, SwitchPolicy, WeighQuery


class PlanChange(NamedTuple):
    """Migrate a running query to an equivalent plan."""

    query: str
    plan: Plan


class CombinedChange(NamedTuple):
    """Several changes, applied all or none."""

    changes: tuple[Change, ...]


Change: TypeAlias = SwitchPolicy | ShedRows | WeighQuery | PlanChange | CombinedChange


def combined(changes: Sequence[Change]) -> Change:
    """Return a single change that makes all the given ones."""
    return changes[0] if len(changes) == 1 else CombinedChange(tuple(changes))


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change that a rule proposes, with its reason."""

    rule: str
    change: Change | None
    """None if only a user may make it; then it is noted in the journal, and nothing is changed."""
    undo: Change | None
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
