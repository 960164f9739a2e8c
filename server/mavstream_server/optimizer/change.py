"""Changes: what the optimizer can have done, as data. Each has its opposite, so that it can be undone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from mavstream_protocol.scheduling import SchedulerSettings


class SwitchPolicy(NamedTuple):
    """Let another policy decide."""

    settings: SchedulerSettings


class ShedRows(NamedTuple):
    """Drop this share of the rows that a query reads; 0 for none."""

    query: str
    share: float


Change: TypeAlias = SwitchPolicy | ShedRows


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
