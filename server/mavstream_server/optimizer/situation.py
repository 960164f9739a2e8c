"""Situation: the input of the optimizer's rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mavstream_protocol.scheduling import SchedulerSettings
from mavstream_server.optimizer.monitor import Monitor
from mavstream_server.planning.rewriting.choice import PlanChoice


@dataclass(frozen=True, slots=True)
class Situation:
    """The state of targets and queries at one time."""

    now: float
    """Monotonic time, in seconds."""
    monitor: Monitor
    scheduler: SchedulerSettings
    priorities: Mapping[str, int]
    """Priorities of the classes, by name."""
    shed: Mapping[str, float] = field(default_factory=dict)
    """Share of rows that is shed, by query id."""
    weights: Mapping[str, int] = field(default_factory=dict)
    """Weights of queries within their class, by id, where not 1."""
    class_sizes: Mapping[str, int] = field(default_factory=dict)
    """Number of queries by class, with or without targets."""
    alternates: Mapping[str, PlanChoice] = field(default_factory=dict)
    """Cheapest alternate plan by query id, where one is known."""
    migrating: frozenset[str] = frozenset()
    """Ids of queries with a migration under way, whose effect shows later."""
    could_move: Callable[[str], bool] = lambda _: False
    """Whether a query, given by its id, could run with backend `spark` and keep its targets there."""
