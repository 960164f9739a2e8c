"""Messages between the API process and an engine process, pickled over their private channel.

Commands carry a number and are answered once, by Done or Failed with that number; events carry none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mavstream_protocol.expressions.typed import Expression
from mavstream_protocol.scheduling import DEFAULT_SCHEDULER, SchedulerSettings, Sharing
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_server.core.metrics import ClassMetricsReply, EngineMetrics, QueryMetrics, TargetMetricsReply
from mavstream_server.engine.query import QueryRequest
from mavstream_server.engine.trace import RecordedSlices

# Commands


@dataclass(frozen=True, slots=True)
class Hello:
    """How the engine is to work; the first command, answered by Done()."""

    data: Path
    """The data directory; result logs are written below `results`."""
    scheduler: SchedulerSettings = DEFAULT_SCHEDULER
    train: int | None = None
    """Rows that a source hands on at once; None for the engine's default."""
    sharing: Sharing = Sharing.CLASS
    """Which queries run equal prefixes once."""
    result_bytes: int = 16 << 20
    """Kept of each result log,"""
    result_time_ns: int = 3_600_000_000_000
    """and for how long at most."""


@dataclass(frozen=True, slots=True)
class AttachStream:
    """Read a stream's log; does nothing if it is attached. Done()."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class DetachStream:
    """Let a stream's log go; refused while a running or paused query reads it. Done()."""

    name: str


@dataclass(frozen=True, slots=True)
class StartQuery(QueryRequest):
    """Run a query; its streams must be attached. Done(Started)."""

    epoch: int = 0
    """Written as `producer` into each frame of the result log."""
    paused: bool = False
    """Start it detached from its streams."""


@dataclass(frozen=True, slots=True)
class StopQuery:
    """End a query and close its result log; refused when it has ended. Done()."""

    id: str


@dataclass(frozen=True, slots=True)
class ForgetQuery:
    """Drop a query from the books, ended or not, known or not. The files of its log stay. Done()."""

    id: str


@dataclass(frozen=True, slots=True)
class PauseQuery:
    """Detach a query from its streams. Done()."""

    id: str


@dataclass(frozen=True, slots=True)
class ResumeQuery:
    """Let a paused query go on with the next rows to come. Done()."""

    id: str


@dataclass(frozen=True, slots=True)
class ChangeClass:
    """Move a query to another class. Done()."""

    id: str
    class_name: str


@dataclass(frozen=True, slots=True)
class SetStopTime:
    """Let a query end at another arrival time, or not by time; refused where it has read on. Done()."""

    id: str
    stop_at: int | None
    """Microseconds."""


@dataclass(frozen=True, slots=True)
class SetTargets:
    """Let a query have other targets: how long its sources may wait, and what rows are worth. Done()."""

    id: str
    latency_target_us: int | None
    worth: Mapping[str, Expression]
    """By stream."""


@dataclass(frozen=True, slots=True)
class WeighQuery:
    """Give a query more of its class, or no more than the others (1). Done()."""

    id: str
    weight: int


@dataclass(frozen=True, slots=True)
class ShedRows:
    """Leave out a share of the rows that a query reads; 0 for none. Done()."""

    id: str
    share: float


@dataclass(frozen=True, slots=True)
class MigratePlan:
    """Let a running query go on with a plan that gives the same answer, as soon as it can.

    Done() says that it was begun: the query's figures tell the version of the plan that runs, and why a swap
    was given up.
    """

    id: str
    plan: TypedPlan
    version: int
    """What figures call this plan; 0 for the one that the query started with."""
    limit_us: int | None = None
    """How long new operators may take to get to know what the old ones know; None for the engine's."""


@dataclass(frozen=True, slots=True)
class SetPriority:
    """Set the priority of a class. Done()."""

    class_name: str
    priority: int


@dataclass(frozen=True, slots=True)
class SwitchPolicy:
    """Let another policy decide. Done()."""

    scheduler: SchedulerSettings


@dataclass(frozen=True, slots=True)
class StartTrace:
    """Record slices from now on, up to a number; what was recorded before is dropped. Done()."""

    most: int


@dataclass(frozen=True, slots=True)
class TakeTrace:
    """Stop recording. Done(RecordedSlices)."""


@dataclass(frozen=True, slots=True)
class GetEngineMetrics:
    """Ask for the engine's own figures. Done(EngineMetrics)."""


@dataclass(frozen=True, slots=True)
class GetQueryMetrics:
    """Ask for the figures of some queries; unknown ones are left out. Done(dict of QueryMetrics by id)."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GetTargetMetrics:
    """Ask for the metrics that targets are compared with; only running queries. Done(TargetMetricsReply)."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GetClassMetrics:
    """Ask for the figures of all classes that have queries. Done(ClassMetricsReply)."""


@dataclass(frozen=True, slots=True)
class GetTableNeed:
    """Ask which rows that join a table are on their way. Done(TableNeed)."""

    table: str


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Close everything and exit. Done()."""


Command = (
    Hello
    | AttachStream
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
    | SetPriority
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
    """Where a query begins."""

    offset: int
    """Of its first answer in the result log."""
    positions: dict[str, int]
    """The lowest position it needs, by stream."""


@dataclass(frozen=True, slots=True)
class TableNeed:
    """What is still needed of a table's older versions."""

    arrival: int | None
    """The lowest of the rows that were read and not joined yet; None if there are none."""


Value = (
    Started
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
    """The command was carried out."""

    value: Value = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The command was refused or broke; nothing has changed."""

    code: str
    detail: str


Reply = Done | Failed

# Events


@dataclass(frozen=True, slots=True)
class Ready:
    """The process has started and expects Hello."""

    pid: int


@dataclass(frozen=True, slots=True)
class QueryEnded:
    """A query has finished or failed by itself; told once, when all its answers are in the log."""

    id: str
    state: str
    """`finished` or `failed`."""
    reason: str | None


@dataclass(frozen=True, slots=True)
class Need:
    """What a stream's log must keep."""

    position: int
    """The lowest that a query still needs,"""
    query: str
    """and which query that is."""


@dataclass(frozen=True, slots=True)
class Positions:
    """What the logs must keep, by stream; told when it has changed. Streams without readers are left out."""

    needs: dict[str, Need]


Event = Ready | QueryEnded | Positions
Message = Command | Reply | Event
