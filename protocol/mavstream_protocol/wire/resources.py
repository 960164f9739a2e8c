"""Resources that the REST API returns, in addition to the specifications that clients send."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from mavstream_protocol.admission import AdmissionEstimate
from mavstream_protocol.described import Described
from mavstream_protocol.errors import ProblemItem
from mavstream_protocol.instants import Instant
from mavstream_protocol.names import Name
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.qos import QosSpec
from mavstream_protocol.queries import QuerySpec
from mavstream_protocol.streams import DerivedStreamSpec, FieldSpec, StreamSpec
from mavstream_protocol.tokens import Role
from mavstream_protocol.wire.delivery import CheckpointInfo, QueryDelivery
from mavstream_protocol.wire.query_run import QueryRun
from mavstream_protocol.wire.results import GapReason
from mavstream_protocol.wire.seams import Seam

_CONFIG = ConfigDict(frozen=True)
Item = TypeVar("Item")


class Page(BaseModel, Generic[Item]):
    """A page of a list; pass `next` as `?after=` for the next page, null at the end."""

    # No attribute docstrings: pydantic would search the stack for the source of each kind of page, for 20 ms.
    model_config = ConfigDict(frozen=True)
    items: list[Item]
    next: str | None = None


class DesiredState(StrEnum):
    """The state of a query that the client requested."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


class ActualState(StrEnum):
    """The current state of a query."""

    SCHEDULED = "scheduled"
    """Waiting for `start_at`: not instantiated, reads nothing."""
    STARTING = "starting"
    """About to be instantiated, or waiting for an engine."""
    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


class StreamInfo(Described):
    """State of a stream."""

    model_config = _CONFIG
    name: str
    spec: DerivedStreamSpec | StreamSpec
    """Of a derived stream the columns and the time of the results, and the query that they are of."""
    position: int
    """Position of the next row."""
    begin: int
    """Position of the oldest row that is stored."""
    bytes: int
    """Bytes on disk."""
    watermark: str | None
    """The time, by event time or arrival time, up to which the stream is complete."""
    producers: dict[str, int]
    """Last sequence by producer."""
    over_quota: bool
    held_by: str | None
    """The query whose cursor prevents the oldest segment from being removed."""
    importance: int = 0
    """The priority of the highest class that reads it; 0 if no query does."""
    overloaded: bool = False
    """Whether its producers get no credit, because its rows arrive faster than any query reads them."""
    owner: str | None = None
    """The token that created it; if none, it belongs to all."""
    changed: tuple[str, ...] | None = None
    """What a change made different: `fields/NAME` for each field that was added, and names of settings.

    Only in the response to the change; empty if everything was so already.
    """


class ProducerInfo(Described):
    """State of a producer."""

    model_config = _CONFIG
    name: str
    owner: str | None
    """The token that used the name first; if none, it belongs to all."""
    connected: bool
    last_used: str
    """To about a minute."""
    sequences: dict[str, int]
    """Last sequence by stream."""


class TableVersion(Described):
    """A version of a stored table."""

    model_config = _CONFIG
    version: int
    since: str
    """Rows that arrive from then on join it, until the next one."""
    rows: int
    bytes: int
    """Bytes on disk."""


class TableInfo(Described):
    """State of a stored table."""

    model_config = ConfigDict(
        **_CONFIG,
        json_schema_extra={
            "examples": [
                {
                    "name": "rooms",
                    "fields": [
                        {"name": "room", "type": "string", "nullable": False},
                        {"name": "threshold", "type": "float", "nullable": True},
                    ],
                    "version": 3,
                    "since": "2026-01-01T12:00:00.000000Z",
                    "rows": 12,
                    "bytes": 4096,
                    "versions": 2,
                }
            ]
        },
    )
    name: str
    fields: tuple[FieldSpec, ...]
    version: int
    """The number of the current version, from 1."""
    since: str
    """When the current version became current."""
    rows: int
    """Number of rows of the current version."""
    bytes: int
    """Bytes on disk of all stored versions."""
    versions: int
    """Number of stored versions: old ones are retained while rows that arrived in their time can be read."""


class TableDetail(TableInfo):
    """A stored table with its versions and its users."""

    kept: tuple[TableVersion, ...]
    """Oldest first; the last one is current."""
    used_by: tuple[str, ...]
    """Queries that join it and have not ended."""


class LatencySummary(Described):
    """Milliseconds from arrival to output."""

    model_config = _CONFIG
    count: int
    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    max: float | None


class OperatorInfo(Described):
    """An operator of a running query."""

    model_config = _CONFIG
    name: str
    operator: str
    state: str
    queued: int
    cost_per_tuple_us: float
    selectivity: float
    tuple_bytes: float = 64.0
    """Bytes per output row."""
    processing_capacity: float | None = None
    """Input rows per second that it could process alone; only in a query's plan, and not for sources."""
    memory_release_capacity: float | None = None
    """Bytes per second that it would free then."""
    tuples: int
    """Number of tuples measured; 0 means that cost, selectivity and size are declared or defaults."""
    counters: dict[str, int]
    sharers: int = 1
    """Number of queries that it runs for: more than one in a shared pipeline."""
    shared_with: tuple[str, ...] = ()
    """Up to ten of the other queries that it runs for."""


class QueryInfo(Described):
    """State of a query."""

    model_config = _CONFIG
    id: str
    spec: QuerySpec
    fields: tuple[FieldSpec, ...]
    desired: DesiredState
    state: ActualState
    reason: str | None = None
    """Why it failed."""
    epoch: int
    revision: int = 0
    """How often its plan was replaced."""
    seam: Seam | None = None
    """Where that happened for the last time; null if it never has, or before the query had begun."""
    created: str
    results: int
    """Answers so far: the offset of the next one."""
    owner: str | None = None
    """The token that registered it; if none, it belongs to all."""
    latency_ms: LatencySummary | None = None
    memory_bytes: dict[str, int] = {}
    """Bytes queued, in state and in backlog; shared memory counts in full for each query."""
    late: int = 0
    """Rows that arrived after all their windows had closed.

    In ordered unions and joins `within`: rows before their own watermark. The sum over all operators since
    the query was last instantiated.
    """
    missed: int = 0
    """Rows that the query could not use.

    Their windows began before its first row or were cut by a pause, they arrived while it was paused, or
    retention removed them before it read them.
    """
    counters: dict[str, dict[str, int]] = {}
    """Rows that do not contribute to answers, by operator and reason.

    Reasons: `late`, `missed`, `outside` (of all windows), `errors`, `unmatched` and `unread` (of a split),
    `shed`; and `skipped_windows`.
    """
    checkpoint: CheckpointInfo | None = None
    """The last checkpoint; null if checkpoints are off, or no engine runs the query."""
    delivery: QueryDelivery
    """What holds for its answers after a crash."""
    run: QueryRun | None = None
    """Its run, if a runner of another backend runs it."""
    admission: AdmissionEstimate | None = None
    """The estimate at registration; only in the response to the registration."""
    reads: tuple[str, ...] = ()
    """The ids of the queries whose results it reads."""
    read_by: tuple[str, ...] = ()
    """The ids of the queries that read its results."""
    held_by: str | None = None
    """The query that is most behind of those that read its results: they are retained for it."""


class QueryChange(Described):
    """Changes that `PATCH /v1/queries/{id}` accepts; omitted fields stay as they are."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        json_schema_extra={
            "examples": [
                {"state": "paused"},
                {"stop_at": "2026-01-01T18:00:00Z", "qos": {"latency": {"p95": "20ms"}}},
                {"start_at": "2026-01-01T12:30:00Z"},
                {"stop_at": None},
                {"state": "running", "skip_to": {"readings": 120000}},
            ]
        },
    )
    state: DesiredState | None = None
    """The requested state; a scheduled query that is paused becomes paused at its start."""
    class_: str | None = Field(default=None, alias="class")
    """The query class that it moves to."""
    start_at: Instant | None = None
    """The start time, while the query is scheduled; a past time or null starts it now."""
    stop_at: Instant | None = None
    """The end time; null removes it. Refused (409) if the query has read rows that arrived later."""
    qos: QosSpec | None = None
    """Its targets, all of them; null for none."""
    skip_to: dict[Name, NonNegativeInt] | None = None
    """Positions by stream, with the state `running`: a query that has failed goes on there, with empty state.
    Streams that are not named go on at their end."""


class Backend(Described):
    """Whether a plan can run on a backend."""

    model_config = _CONFIG
    name: str
    """`server`: this service; `spark`: queries with backend `spark`, which a runner runs."""
    supported: bool
    reasons: tuple[str, ...] = ()
    """What is not supported, with the node."""


class Validation(Described):
    """The result of `POST /v1/queries/validate`."""

    model_config = _CONFIG
    valid: bool
    schemas: dict[str, tuple[FieldSpec, ...]] = {}
    """By node."""
    paths: tuple[tuple[str, ...], ...] = ()
    """Operator paths, leaf to root."""
    plan: Plan | None = None
    """The plan of a valid query that was sent as SQL."""
    errors: tuple[ProblemItem, ...] = ()
    backends: tuple[Backend, ...] = ()
    """The backends that a valid query can have."""
    admission: AdmissionEstimate | None = None
    """The estimate for a valid query; null if admission control is off."""


class PulledResults(Described):
    """A page of a query's results."""

    model_config = _CONFIG
    rows: list[dict[str, Any]]
    next: int
    """The value of `after` for the next page: the offset of the last row so far, -1 if there is none."""
    epoch: int
    revision: int = 0
    """How often the query's plan was replaced before these rows; a page has rows of one plan."""
    end: int = 0
    """Offset of the next result to come, when the page was requested."""
    complete: bool = False
    """Whether the query had ended then: no results will follow `end`."""
    gap: tuple[int, int] | None = None
    """Requested offsets that are no longer stored (start, stop), excluding the stop."""
    gap_reason: GapReason | None = None
    """Why they are missing: `retention`, or `damage` if some of them are damaged."""


class StreamRows(Described):
    """A page of a stream's rows, at consecutive positions up to `next`."""

    model_config = _CONFIG
    rows: list[dict[str, Any]]
    next: int
    """The value of `after` for the next page: the position of the last row so far, -1 if there is none."""
    end: int
    """Position of the next row to come, when the page was requested."""
    watermark: str | None
    """The watermark of the stream at `end`; null before its first row."""
    complete: bool
    """Whether the stream ends at `end`: no rows will follow."""
    gap: tuple[int, int] | None = None
    """Requested positions before the rows that are no longer stored (start, stop), excluding the stop."""
    gap_reason: GapReason | None = None
    """Why they are missing: `retention`, or `damage` if some of them are damaged."""


class PolicyInfo(Described):
    """A scheduling policy that can be chosen."""

    model_config = _CONFIG
    name: str
    description: str
    optimises: str
    options: dict[str, Any]
    """JSON schema of its options."""


class ServerInfo(Described):
    """Name, version, delivery guarantee and limits of the server."""

    model_config = _CONFIG
    name: str
    version: str
    delivery: str
    limits: dict[str, int]
    engines: int
    role: Role = Role.ADMIN
    """What the token of this request may do; without tokens everything."""
