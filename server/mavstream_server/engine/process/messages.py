"""Messages between the API process and an engine process, pickled over their private channel.

A command has a number and gets one reply with that number, Done or Failed; events have none. The
docstring of a command ends with its reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mavstream_protocol.classes import QueryClass
from mavstream_protocol.expressions.typed import Expression
from mavstream_protocol.queries import OnError
from mavstream_protocol.scheduling import DEFAULT_SCHEDULER, SchedulerSettings, Sharing
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_server.core.metrics import ClassMetricsReply, EngineMetrics, QueryMetrics, TargetMetricsReply
from mavstream_server.engine.process.events import Event
from mavstream_server.engine.query_request import QueryRequest
from mavstream_server.engine.slices.trace import RecordedSlices

# Commands


@dataclass(frozen=True, slots=True)
class Hello:
    """Configure the engine; must be the first command. Done()."""

    data: Path
    """The data directory; result logs are written to its `results` folder."""
    scheduler: SchedulerSettings = DEFAULT_SCHEDULER
    train: int | None = None
    """Rows that a source emits at once; None for the engine's default."""
    sharing: Sharing = Sharing.CLASS
    """Which queries share equal prefixes."""
    result_bytes: int = 16 << 20
    """Bytes of each result log that are retained."""
    result_time_ns: int = 3_600_000_000_000
    """How long results are retained (ns)."""
    query_memory: int | None = None
    """Resident bytes beyond which a query without a limit of its own fails; None for no limit."""
    engine_memory: int | None = None
    """Bytes of the engine process beyond which the query that holds most fails; None for no limit."""
    checkpoint_interval_ns: int | None = None
    """Time between two checkpoints of a query that has changed (ns); None for no checkpoints."""
    sync: bool = False
    """Whether checkpoints are synced to disk, so that they survive power loss."""


@dataclass(frozen=True, slots=True)
class SetClock:
    """Set the clock that latencies and stop times are measured with. Done()."""

    offset_ns: int
    """Arrival time minus monotonic time."""


@dataclass(frozen=True, slots=True)
class AttachStream:
    """Attach a stream's log, so that queries can read it; does nothing if it is attached. Done()."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class AttachResults:
    """Attach a query's result log, so that other queries can read it; does nothing if it is attached. Done().

    The log must be there.
    """

    name: str
    """The name of the query, under which plans read it."""
    id: str
    over: bool = False
    """Whether the query has ended and will not be started again."""
    expected: Mapping[str, int] = field(default_factory=dict)
    """The offsets that checkpoints of queries need which are not started yet, by the ids of these."""


@dataclass(frozen=True, slots=True)
class DetachResults:
    """Detach the result log of a query that is removed. Done()."""

    id: str


@dataclass(frozen=True, slots=True)
class DetachStream:
    """Detach a stream's log; refused while a running or paused query reads it. Done()."""

    name: str


@dataclass(frozen=True, slots=True)
class StartQuery(QueryRequest):
    """Start a query; its streams must be attached. Done(Started)."""

    epoch: int = 0
    """The epoch of the query, written as `producer` into each frame of the result log."""
    revision: int = 0
    """How often its plan was replaced, written as `sequence` into each of these frames."""
    paused: bool = False
    """Start it detached from its streams."""
    checkpoint: int | None = None
    """The number of the checkpoint to continue from, under the same epoch; None to start with empty state."""
    was_paused: bool = False
    """Whether the query was paused when that checkpoint was taken."""
    resumes: Mapping[str, int] | None = None
    """Where it goes on if it was and is not to be any more, by stream; None for the next rows to arrive."""
    plan_version: int = 0
    """The version of the plan; 0 is the registered one."""
    plan_json: str | None = None
    """The plan as JSON, to be stored in checkpoints; None for the registered one."""


@dataclass(frozen=True, slots=True)
class StopQuery:
    """Stop a query and close its result log; refused if it has ended. Done()."""

    id: str


@dataclass(frozen=True, slots=True)
class ForgetQuery:
    """Remove a query, running or ended; unknown ones are ignored. Its result log stays on disk. Done()."""

    id: str


@dataclass(frozen=True, slots=True)
class PauseQuery:
    """Detach a query from its streams. Done()."""

    id: str


@dataclass(frozen=True, slots=True)
class ResumeQuery:
    """Resume a paused query. Done()."""

    id: str
    positions: Mapping[str, int] | None = None
    """Where it goes on, by stream; None for the next rows to arrive."""


@dataclass(frozen=True, slots=True)
class ChangeClass:
    """Move a query to another class. Done()."""

    id: str
    class_name: str


@dataclass(frozen=True, slots=True)
class SetStopTime:
    """Set the arrival time at which a query ends; refused if it has read beyond it. Done()."""

    id: str
    stop_at: int | None
    """Arrival time (us); None for no end."""


@dataclass(frozen=True, slots=True)
class SetTargets:
    """Set a query's latency target, and the utility of its rows for load shedding. Done()."""

    id: str
    latency_target_us: int | None
    utility: Mapping[str, Expression]
    """Utility expressions, by stream."""


@dataclass(frozen=True, slots=True)
class WeighQuery:
    """Set the weight of a query within its class; the default is 1. Done()."""

    id: str
    weight: int


@dataclass(frozen=True, slots=True)
class ShedRows:
    """Drop a share (0 to 1) of the rows that a query reads; 0 for none. Done()."""

    id: str
    share: float


@dataclass(frozen=True, slots=True)
class MigratePlan:
    """Migrate a running query to an equivalent plan as soon as possible. Done().

    The reply means that the migration has begun: the query's metrics contain the version of the plan that
    runs, and why a migration was given up.
    """

    id: str
    plan: TypedPlan
    version: int
    """The version of the plan in metrics; 0 is the one that the query started with."""
    plan_json: str | None = None
    """The plan as JSON, to be stored in checkpoints; None for the registered one."""
    limit_us: int | None = None
    """How long new operators may take to build up their state; None for the engine's default."""


@dataclass(frozen=True, slots=True)
class ReplacePlan:
    """Replace the plan of a running query as soon as possible. Done(PlanReplaced).

    The reply means that the new plan runs, and that a checkpoint says so; repeating the command with the same
    version is safe. Refused with `replace_refused` if the query goes on with its plan.
    """

    id: str
    plan: TypedPlan
    version: int
    """The version of the plan in metrics."""
    plan_json: str
    """The plan as JSON, to be stored in checkpoints."""
    revision: int
    """How often the plan was replaced, this time included."""
    on_error: OnError = OnError.NULL
    memory_limit: int | None = None
    utility: Mapping[str, Expression] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SetClass:
    """Set the priority and the latency target of a class. Done()."""

    spec: QueryClass


@dataclass(frozen=True, slots=True)
class SwitchPolicy:
    """Replace the scheduling policy. Done()."""

    scheduler: SchedulerSettings


@dataclass(frozen=True, slots=True)
class StartTrace:
    """Start to record slices, at most `most`; an earlier recording is dropped. Done()."""

    most: int


@dataclass(frozen=True, slots=True)
class TakeTrace:
    """Stop recording slices and return them. Done(RecordedSlices)."""


@dataclass(frozen=True, slots=True)
class GetEngineMetrics:
    """Get the metrics of the engine. Done(EngineMetrics)."""


@dataclass(frozen=True, slots=True)
class GetQueryMetrics:
    """Get the metrics of some queries; unknown ones are left out. Done(dict of QueryMetrics by id)."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GetTargetMetrics:
    """Get the metrics that targets are compared with, of active queries. Done(TargetMetricsReply)."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GetClassMetrics:
    """Get the metrics of all classes that have queries. Done(ClassMetricsReply)."""


@dataclass(frozen=True, slots=True)
class GetTableNeed:
    """Get what was read and is still to join a table. Done(TableNeed)."""

    table: str


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Close everything and exit. Done()."""


Command = (
    Hello
    | SetClock
    | AttachStream
    | AttachResults
    | DetachResults
    | DetachStream
    | StartQuery
    | StopQuery
    | ForgetQuery
    | PauseQuery
    | ResumeQuery
    | ChangeClass
    | SetStopTime
    | SetTargets
    | WeighQuery
    | ShedRows
    | MigratePlan
    | ReplacePlan
    | SetClass
    | SwitchPolicy
    | StartTrace
    | TakeTrace
    | GetEngineMetrics
    | GetQueryMetrics
    | GetTargetMetrics
    | GetClassMetrics
    | GetTableNeed
    | Shutdown
)

# Replies


@dataclass(frozen=True, slots=True)
class Started:
    """Where a query has started."""

    offset: int
    """The offset of its first result row."""
    positions: dict[str, int]
    """The lowest position that it needs, by stream."""


@dataclass(frozen=True, slots=True)
class TableNeed:
    """Which older versions of a table are still needed."""

    arrival: int | None
    """The lowest arrival time of the rows that were read and not joined yet; None if there are none."""
    unread: dict[str, int]
    """The offsets of the first results that may still be joined, by the id of the query that gave them."""


@dataclass(frozen=True, slots=True)
class PlanReplaced:
    """Where the plan of a query was replaced."""

    offset: int
    """The offset of the first answer of the new plan."""
    lacking: Mapping[str, tuple[int, int]]
    """Rows that it would have needed and that are not retained: by stream the first position that is, and
    the latest time (us) before it."""


Value = (
    Started
    | PlanReplaced
    | EngineMetrics
    | dict[str, QueryMetrics]
    | TargetMetricsReply
    | ClassMetricsReply
    | RecordedSlices
    | TableNeed
    | None
)


@dataclass(frozen=True, slots=True)
class Done:
    """The command was executed."""

    value: Value = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The command was refused or raised an error; nothing has changed."""

    code: str
    detail: str


Reply = Done | Failed

Message = Command | Reply | Event
