"""A registered query as the API process knows it: what is wanted, what is, and which moves are allowed."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from types import MappingProxyType

from mavstream_protocol.schema import Schema
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_protocol.wire.resources import ActualState, DesiredState
from mavstream_server.catalog.catalog import QueryRecord
from mavstream_server.core.errors import Conflict
from mavstream_server.core.metrics import QueryMetrics
from mavstream_server.optimizer.running_plans import RunningPlans

_SUFFIX = "abcdefghijklmnopqrstuvwxyz234567"

# What a client may want next, by what it wanted last. Wanting the same again changes nothing.
DESIRED_MOVES: MappingProxyType[DesiredState, frozenset[DesiredState]] = MappingProxyType(
    {
        DesiredState.RUNNING: frozenset({DesiredState.PAUSED, DesiredState.STOPPED}),
        DesiredState.PAUSED: frozenset({DesiredState.RUNNING, DesiredState.STOPPED}),
        DesiredState.STOPPED: frozenset(),
    }
)


class Query:
    """A query in the catalog, and whether the engine has it.

    What the catalog keeps is in `record`, replaced with every change. `lock` is held by whoever moves the
    query between states, so that commands to the engine come in the order of the changes.
    """

    def __init__(self, record: QueryRecord, plan: TypedPlan | None, schema: Callable[[], Schema]) -> None:
        self.record = record
        self.plan = plan
        """None for a query that has ended before this server started."""
        self.scheduled = False
        """Whether it waits for its start_at."""
        self.placed = False
        """Whether the engine that is there now has it."""
        self.begun = record.epoch > 0
        """Whether an engine ever had it."""
        self.paused = False
        """Whether it is paused there."""
        self.placed_class = ""
        """The class that it has there,"""
        self.placed_qos = record.spec.qos
        """and the targets."""
        self.swapped = RunningPlans()
        """What its plan was swapped for."""
        self.lock = asyncio.Lock()
        self._known_schema = schema

    @property
    def id(self) -> str:
        """Its id: URL-safe, also the name of its result log."""
        return self.record.id

    @property
    def class_name(self) -> str:
        """The class that it belongs to."""
        return self.record.spec.class_

    @property
    def schema(self) -> Schema:
        """The columns of its answers."""
        return self._known_schema() if self.plan is None else self.plan.schema

    @property
    def epoch(self) -> int:
        """How often it was instantiated."""
        return self.record.epoch

    @property
    def final(self) -> ActualState | None:
        """How it ended, or None."""
        return None if self.record.final_state is None else ActualState(self.record.final_state)

    @property
    def reason(self) -> str | None:
        """Why it failed."""
        return self.record.reason

    @property
    def state(self) -> ActualState:
        """What it is."""
        if self.final is not None:
            return self.final
        if self.scheduled:
            return ActualState.SCHEDULED
        if not self.placed:
            return ActualState.STARTING
        return ActualState.PAUSED if self.paused else ActualState.RUNNING

    @property
    def streams(self) -> frozenset[str]:
        """The streams that it reads while it can run."""
        return frozenset() if self.plan is None else frozenset(source.stream for source in self.plan.sources)

    def plan_of(self, stats: QueryMetrics) -> TypedPlan | None:
        """Return the plan that figures are of: it may have been swapped."""
        swapped = self.swapped.running(stats)
        return self.plan if swapped is None else swapped.typed

    @property
    def tables(self) -> frozenset[str]:
        """The stored tables that it joins while it can run."""
        return frozenset() if self.plan is None or self.final is not None else self.plan.tables

    def check_move(self, desired: DesiredState) -> None:
        """Raise Conflict if a client cannot want this of the query any more."""
        was = self.record.desired
        if self.final is not None and not (desired is was and self.final.value == desired.value):
            why = f" ({self.reason})" if self.reason else ""
            raise Conflict(
                f"query '{self.id}' has {_ENDED[self.final]}{why} and cannot become {desired.value}: "
                "that is an end; register it again to run it anew",
                code="wrong_state",
            )
        if desired is not was and desired not in DESIRED_MOVES[was]:
            allowed = ", ".join(sorted(DESIRED_MOVES[was])) or "nothing: it is an end"
            raise Conflict(
                f"query '{self.id}' is to be {was.value} and cannot become {desired.value}; "
                f"from there it can become {allowed}",
                code="wrong_state",
            )


_ENDED = {
    ActualState.FINISHED: "finished",
    ActualState.STOPPED: "been stopped",
    ActualState.FAILED: "failed",
}


def new_id(name: str) -> str:
    """Return an id for a query of that name: a billion of them differ behind the name."""
    return f"{name}-{''.join(secrets.choice(_SUFFIX) for _ in range(6))}"
