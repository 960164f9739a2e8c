"""Resources: what REST answers with, beyond the specifications that clients send."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from mavstream_protocol.admission import AdmissionEstimate
from mavstream_protocol.errors import ProblemItem
from mavstream_protocol.instants import Instant
from mavstream_protocol.qos import QosSpec
from mavstream_protocol.queries import QuerySpec
from mavstream_protocol.streams import FieldSpec, StreamSpec

_CONFIG = ConfigDict(frozen=True, use_attribute_docstrings=True)
Item = TypeVar("Item")


class Page(BaseModel, Generic[Item]):
    """A part of a list; `next` is given to `?after=` for the following part, null at the end."""

    model_config = _CONFIG
    items: list[Item]
    next: str | None = None


class DesiredState(StrEnum):
    """What a client wants of a query."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


class ActualState(StrEnum):
    """What a query is."""

    SCHEDULED = "scheduled"
    """It waits for its `start_at`: it is not instantiated and reads nothing."""
    STARTING = "starting"
    """It is about to be instantiated, or waits for an engine."""
    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


class StreamInfo(BaseModel):
    """A stream as it stands."""

    model_config = _CONFIG
    name: str
    spec: StreamSpec
    position: int
    """Of the next row."""
    begin: int
    """Of the oldest row that is kept."""
    bytes: int
    """On disk."""
    watermark: str | None
    """How far event time (or arrival time) is settled."""
    producers: dict[str, int]
    """Last sequence by producer."""
    over_quota: bool
    held_by: str | None
    """The query whose cursor keeps the oldest segment from being removed."""


class TableVersion(BaseModel):
    """A version of a stored table that is still kept."""

    model_config = _CONFIG
    version: int
    since: str
    """Rows that arrive from then on join it, until the next one."""
    rows: int
    bytes: int
    """On disk."""


class TableInfo(BaseModel):
    """A stored table as it stands."""

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
    """The number of the current version, from 1,"""
    since: str
    """when it became current,"""
    rows: int
    """and its rows."""
    bytes: int
    """On disk, all versions that are kept."""
    versions: int
    """How many are kept: older ones stay while rows that arrived in their time can be read."""


class TableDetail(TableInfo):
    """A stored table with its versions and its users."""

    kept: tuple[TableVersion, ...]
    """Oldest first; the last one is current."""
    used_by: tuple[str, ...]
    """Queries that join it and have not ended."""


class LatencySummary(BaseModel):
    """Milliseconds from arrival to output."""

    model_config = _CONFIG
    count: int
    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    max: float | None


class OperatorInfo(BaseModel):
    """An operator of a running query."""

    model_config = _CONFIG
    name: str
    operator: str
    state: str
    queued: int
    cost_per_tuple_us: float
    selectivity: float
    tuple_bytes: float = 64.0
    """Of a row that comes out."""
    processing_capacity: float | None = None
    """Rows per second that it could take in, by itself; in a query's plan, and not of sources."""
    memory_release_capacity: float | None = None
    """Bytes per second that it would free then."""
    tuples: int
    """Measured so far; 0 says that cost, selectivity and size are declared or defaults."""
    counters: dict[str, int]
    sharers: int = 1
    """How many queries it is run for: more than one where they have a prefix in common,"""
    shared_with: tuple[str, ...] = ()
    """and up to ten of the others."""


class QueryInfo(BaseModel):
    """A query as it stands."""

    model_config = _CONFIG
    id: str
    spec: QuerySpec
    fields: tuple[FieldSpec, ...]
    desired: DesiredState
    state: ActualState
    reason: str | None = None
    """Why it failed."""
    epoch: int
    created: str
    results: int
    """Answers so far: the offset of the next one."""
    latency_ms: LatencySummary | None = None
    memory_bytes: dict[str, int] = {}
    """queued, state, backlog; what it shares with other queries counts in full for each of them."""
    late: int = 0
    """Rows that arrived after all their windows had closed, or behind their own watermark where rows are put
    in order or joined `within`; of all operators together, since the query was last instantiated."""
    missed: int = 0
    """Rows that the query could not use: their windows began before its first row or were cut by a pause,
    they arrived while it was paused, or retention removed them before it read them."""
    counters: dict[str, dict[str, int]] = {}
    """Rows that have no part in the answer, by operator and reason: `late`, `missed`, `outside` (of all
    windows), `errors`, `unmatched` and `unread` (of a split), `shed`; and `skipped_windows`."""
    admission: AdmissionEstimate | None = None
    """What was expected when it was registered; in the answer to that only."""


class QueryChange(BaseModel):
    """What `PATCH /v1/queries/{id}` can change; what is left out stays as it is."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        use_attribute_docstrings=True,
        json_schema_extra={
            "examples": [
                {"state": "paused"},
                {"stop_at": "2026-01-01T18:00:00Z", "qos": {"latency": {"p95": "20ms"}}},
                {"start_at": "2026-01-01T12:30:00Z"},
                {"stop_at": None},
            ]
        },
    )
    state: DesiredState | None = None
    """What is wanted of it; a scheduled query that is paused becomes paused at its start."""
    class_: str | None = Field(default=None, alias="class")
    """The query class that it moves to."""
    start_at: Instant | None = None
    """When it starts, as long as it is scheduled; a time that has passed, or null, starts it now."""
    stop_at: Instant | None = None
    """When it ends; null lets it run on. Refused (409) if it has read what arrived later."""
    qos: QosSpec | None = None
    """Its targets, all of them; null for none."""


class Validation(BaseModel):
    """What `POST /v1/queries/validate` found."""

    model_config = _CONFIG
    valid: bool
    schemas: dict[str, tuple[FieldSpec, ...]] = {}
    """By node."""
    paths: tuple[tuple[str, ...], ...] = ()
    """Operator paths, leaf to root."""
    errors: tuple[ProblemItem, ...] = ()
    admission: AdmissionEstimate | None = None
    """What is expected of a query that is valid; null where admission control is off."""


class PulledResults(BaseModel):
    """A part of a query's answers."""

    model_config = _CONFIG
    rows: list[dict[str, Any]]
    next: int
    """Give it as `after` for the following part: the offset of the last row so far, -1 if there is none."""
    epoch: int
    gap: tuple[int, int] | None = None
    """Offsets (from, up to but not with) that were asked for and are no longer there."""


class PolicyInfo(BaseModel):
    """A scheduling policy that can be chosen."""

    model_config = _CONFIG
    name: str
    description: str
    optimises: str
    options: dict[str, Any]
    """JSON schema of its options."""


class ServerInfo(BaseModel):
    """Which server this is."""

    model_config = _CONFIG
    name: str
    version: str
    delivery: str
    limits: dict[str, int]
    engines: int
