"""A registered query in the API process: desired state, actual state and allowed transitions."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from mavstream_protocol.queries import QueryBackend
from mavstream_protocol.schema import Schema
from mavstream_protocol.typed_plan import StreamShape, TypedPlan
from mavstream_protocol.wire.resources import ActualState, DesiredState
from mavstream_protocol.wire.runs import RunReport
from mavstream_protocol.wire.seams import NotRetained, Seam
from mavstream_server.catalog.catalog import QueryRecord
from mavstream_server.core.errors import Conflict
from mavstream_server.core.metrics import QueryMetrics
from mavstream_server.core.principal import Principal
from mavstream_server.optimizer.running_plans import RunningPlans
from mavstream_server.queries.planning.query_size import is_large

_SUFFIX = "abcdefghijklmnopqrstuvwxyz234567"

# Allowed next states by desired state. Requesting the same state again changes nothing.
DESIRED_MOVES: MappingProxyType[DesiredState, frozenset[DesiredState]] = MappingProxyType(
    {
        DesiredState.RUNNING: frozenset({DesiredState.PAUSED, DesiredState.STOPPED}),
        DesiredState.PAUSED: frozenset({DesiredState.RUNNING, DesiredState.STOPPED}),
        DesiredState.STOPPED: frozenset(),
    }
)


class Heard(NamedTuple):
    """A report of a runner, and when it was received (us since 1970)."""

    report: RunReport
    at_us: int


class Query:
    """A query of the catalog, and its state in the engine.

    `record` is its catalog entry, replaced with every change. `lock` is held during changes of state, so that
    commands reach the engine in the order of the changes.
    """

    def __init__(
        self,
        record: QueryRecord,
        plan: TypedPlan | None,
        schema: Callable[[], Schema],
        owner: str | None = None,
    ) -> None:
        self.record = record
        self.owner = owner
        """The name of the token that registered the query; None if it belongs to all."""
        self.plan = plan
        """The typed plan; None for a query that had ended before this server started."""
        self.beyond: frozenset[str] = frozenset()
        """The origins of the queries whose results it reads."""
        self.scheduled = False
        """Whether the query waits for its start_at."""
        self.placed = False
        """Whether the current engine process runs the query."""
        self.begun = False
        """Whether an engine ever ran the query."""
        self.resumes: Mapping[str, int] | None = None
        """Where it goes on after its last pause, by stream; None if it was never resumed."""
        self.suspect = False
        """Whether it killed an engine: it then shares no operators, so that no other is blamed for it."""
        self.paused = False
        """Whether the query is paused in the engine."""
        self.placed_class = ""
        """The class of the query in the engine."""
        self.placed_qos = record.spec.qos
        """The QoS targets of the query in the engine."""
        self.large = is_large(record.spec.plan)
        """Whether walking its plan would block the event loop."""
        self.running_plans = RunningPlans()
        """Plans that the query was migrated to."""
        self.heard: Heard | None = None
        """The last report of the runner that runs it, if another backend does."""
        self.getting: StreamShape | None = None
        """Its results to come, while its plan is being replaced."""
        self.seams: dict[int, Seam] = {}
        """Where its plan was replaced, by revision."""
        self.lock = asyncio.Lock()
        self._known_schema = schema

    @property
    def id(self) -> str:
        """The id: URL-safe, also the name of the result log."""
        return self.record.id

    @property
    def name(self) -> str:
        """The name: unique, and chosen by the client."""
        return self.record.spec.name

    @property
    def class_name(self) -> str:
        """Name of the query's class."""
        return self.record.spec.class_

    @property
    def schema(self) -> Schema:
        """Schema of the results."""
        return self._known_schema() if self.plan is None else self.plan.schema

    @property
    def epoch(self) -> int:
        """Number of times that the query was started in an engine."""
        return self.record.epoch

    @property
    def revision(self) -> int:
        """How often its plan was replaced."""
        return self.record.revision

    @property
    def seam(self) -> Seam | None:
        """Where its plan was replaced for the last time; None if no engine has done that."""
        return self.seams.get(self.revision)

    def not_retained(self, revision: int) -> tuple[NotRetained, ...] | None:
        """Return the rows that the plan of a revision lacked; None while that is not known yet."""
        if revision in self.seams:
            return self.seams[revision].not_retained
        return () if revision <= self.revision else None

    @property
    def final(self) -> ActualState | None:
        """Final state of an ended query, or None."""
        return None if self.record.final_state is None else ActualState(self.record.final_state)

    @property
    def reason(self) -> str | None:
        """Why the query failed, or None."""
        return self.record.reason

    @property
    def state(self) -> ActualState:
        """The actual state."""
        if self.final is not None:
            return self.final
        if self.scheduled:
            return ActualState.SCHEDULED
        if self.outside and self.heard is not None:
            return ActualState.PAUSED if self.heard.report.paused else ActualState.RUNNING
        if not self.placed:
            return ActualState.STARTING
        return ActualState.PAUSED if self.paused else ActualState.RUNNING

    @property
    def outside(self) -> bool:
        """Whether a runner of another backend runs the query, and not the engine."""
        return self.record.spec.backend is not QueryBackend.EMBEDDED

    @property
    def streams(self) -> frozenset[str]:
        """Names of the streams that the query reads itself; empty once it has ended."""
        sources = () if self.plan is None else self.plan.sources
        return frozenset(source.stream for source in sources if source.query is None)

    @property
    def upstream(self) -> Mapping[str, str]:
        """The ids of the queries whose results it reads, by name."""
        return {} if self.plan is None else self.plan.upstream_queries

    @property
    def origins(self) -> frozenset[str]:
        """The streams whose rows reach the query, and the ids of the queries that they pass on their way."""
        return self.streams | frozenset(self.upstream.values()) | self.beyond

    def require_reader(self, principal: Principal) -> None:
        """Raise Forbidden unless the results may be read: by the owner, and who may use all its streams."""
        if self.owner is not None and self.owner == principal.name:
            return
        for stream in self.record.spec.plan.streams:
            principal.require_stream(stream)

    def plan_of(self, metrics: QueryMetrics) -> TypedPlan | None:
        """Return the plan that the metrics refer to, which may be one the query was migrated to."""
        migrated = self.running_plans.running(metrics)
        return self.plan if migrated is None else migrated.typed

    @property
    def tables(self) -> frozenset[str]:
        """Names of the stored tables that the query joins; empty once it has ended."""
        return frozenset() if self.plan is None or self.final is not None else self.plan.tables

    def check_move(self, desired: DesiredState) -> None:
        """Raise Conflict if the desired state may not change to this one."""
        was = self.record.desired
        if self.final is not None and not (desired is was and self.final.value == desired.value):
            why = f" ({self.reason})" if self.reason else ""
            raise Conflict(
                f"query '{self.id}' has {_ENDED[self.final]}{why} and cannot become {desired.value}: "
                f"that is an end; {_AGAIN[self.final]}",
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


_AGAIN = {
    ActualState.FINISHED: "register it again to run it anew",
    ActualState.STOPPED: "register it again to run it anew",
    ActualState.FAILED: "register it again to run it anew, or resume it with skip_to behind the rows it "
    "failed at",
}


def new_id(name: str) -> str:
    """Return an id for a query of that name: the name with a random suffix of a billion values."""
    return f"{name}-{''.join(secrets.choice(_SUFFIX) for _ in range(6))}"
