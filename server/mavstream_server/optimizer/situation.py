"""What rules look at: the targets as they stand, and what was done before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mavstream_protocol.scheduling import SchedulerSettings
from mavstream_server.optimizer.monitor import Monitor
from mavstream_server.planning.rewriting.choice import PlanChoice


@dataclass(frozen=True, slots=True)
class Situation:
    """The server at one time."""

    now: float
    """Seconds."""
    monitor: Monitor
    scheduler: SchedulerSettings
    priorities: Mapping[str, int]
    """Of the classes."""
    shed: Mapping[str, float] = field(default_factory=dict)
    """The share of rows that is dropped, by query."""
    weights: Mapping[str, int] = field(default_factory=dict)
    """What queries weigh in their class, if it is not 1."""
    class_sizes: Mapping[str, int] = field(default_factory=dict)
    """Queries in each class, with targets or without."""
    alternates: Mapping[str, PlanChoice] = field(default_factory=dict)
    """Queries of which other plans are known, with the cheapest."""
    swapping: frozenset[str] = frozenset()
    """Queries whose plan is being swapped: what that brings shows later."""
