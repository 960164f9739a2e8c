"""Running plans: the operators of one query with their statistics, and those of all queries."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from mavstream_protocol.described import Described
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.streams import FieldSpec
from mavstream_protocol.wire.resources import ActualState, LatencySummary, OperatorInfo

_CONFIG = ConfigDict(frozen=True, populate_by_name=True, serialize_by_alias=True)

_UNIT: dict[str, Any] = {
    "operators": ["hot", "#output"],
    "processing_capacity": 13.3e6,
    "memory_release_capacity": 240e6,
}


class PlanEdge(Described):
    """An edge along which rows flow from an operator or a stream to an operator, or a table lookup."""

    model_config = _CONFIG
    from_: str = Field(alias="from")
    """An operator, `stream:NAME`, `query:NAME` or `table:NAME`."""
    to: str
    output: str | None = None
    """The output of a split that is read."""


class OperatorUnit(Described):
    """Operators that a policy runs as one, bottom-up: a path, a segment or a simplified segment."""

    model_config = _CONFIG
    operators: tuple[str, ...]
    """Names, the lowest first; `#output` hands answers to their log."""
    processing_capacity: float
    """Input rows per second that it could process with the engine to itself."""
    memory_release_capacity: float
    """Bytes per second that it would then free; negative if it increases the number or size of rows."""


class UpstreamQuery(Described):
    """A query of a chain, which gives results that lead to those of another query."""

    model_config = _CONFIG
    query: str
    name: str
    class_: str = Field(alias="class")
    state: ActualState
    reads: tuple[str, ...]
    """`stream:NAME` or `query:NAME`, as edges begin."""
    results: int
    """The offset of its next result."""
    read: int | None
    """The offset from which the queries above it in the chain have not read yet, the lowest of them.

    Null if none of them runs.
    """
    latency_ms: LatencySummary | None
    """From the arrival of rows in the first streams to its results; null while it does not run."""


class QueryPlan(Described):
    """A query's plan, its derived units, and the state of its operators."""

    model_config = ConfigDict(
        **_CONFIG,
        json_schema_extra={
            "examples": [
                {
                    "query": "hot_homes-k3xv7q",
                    "state": "running",
                    "plan": {
                        "version": 1,
                        "root": "hot",
                        "nodes": {
                            "in": {"op": "source", "stream": "readings"},
                            "hot": {"op": "select", "input": "in", "where": "temperature > 30"},
                        },
                    },
                    "running": None,
                    "swaps": 0,
                    "swap": None,
                    "swap_note": None,
                    "schemas": {"in": [{"name": "temperature", "type": "float", "nullable": False}]},
                    "paths": [["in", "hot"]],
                    "operator_paths": [_UNIT],
                    "segments": [_UNIT],
                    "simplified_segments": [_UNIT],
                    "edges": [{"from": "stream:readings", "to": "in"}, {"from": "in", "to": "hot"}],
                    "chain": [],
                    "operators": [
                        {
                            "name": "hot",
                            "operator": "select",
                            "state": "suspend",
                            "queued": 0,
                            "cost_per_tuple_us": 0.05,
                            "selectivity": 0.25,
                            "tuple_bytes": 24.0,
                            "processing_capacity": 20e6,
                            "memory_release_capacity": 360e6,
                            "tuples": 4000,
                            "counters": {},
                            "sharers": 2,
                            "shared_with": ["warm_homes-q2mc5t"],
                        }
                    ],
                }
            ]
        },
    )
    query: str
    state: ActualState
    plan: Plan
    """As it was registered."""
    running: Plan | None = None
    """The equivalent plan that runs instead because the optimizer found it cheaper; null if `plan` runs."""
    swaps: int = 0
    """Number of plan migrations since the query was last instantiated."""
    swap: str | None = None
    """Phase of a migration in progress: `draining`, `warming` or `leaving`.

    `draining`: rows between operators are processed; `warming`: new operators build up their state;
    `leaving`: the migration was abandoned.
    """
    swap_note: str | None = None
    """Why the last migration was abandoned, if it was."""
    schemas: dict[str, tuple[FieldSpec, ...]]
    """By node of the plan that runs; empty if the streams of an ended query are gone."""
    paths: tuple[tuple[str, ...], ...]
    """Operator paths, leaf to root."""
    operator_paths: tuple[OperatorUnit, ...] = ()
    """The paths without their sources, as the policy `path_capacity` runs them.

    Their capacities follow from current statistics. Like segments, empty while the query does not run.
    """
    segments: tuple[OperatorUnit, ...] = ()
    """As `segment` runs them."""
    simplified_segments: tuple[OperatorUnit, ...] = ()
    """As `simplified_segment` runs them with its default gamma."""
    edges: tuple[PlanEdge, ...]
    chain: tuple[UpstreamQuery, ...] = ()
    """The queries whose results it reads, directly and through others, each after those that it reads."""
    operators: tuple[OperatorInfo, ...]
    """Operators with their states; empty while the query is starting.

    States: `ready` (input is waiting), `run`, `suspend` (no input) or `stop` (the query has ended; statistics
    are declared ones).
    """


class QuerySql(Described):
    """A query's plan as SQL; reading it gives the same plan, but for the names of nodes."""

    model_config = ConfigDict(
        **_CONFIG,
        json_schema_extra={
            "examples": [
                {
                    "query": "hot_homes-k3xv7q",
                    "sql": "SELECT *\nFROM readings\nWHERE temperature > 30",
                    "running": None,
                }
            ]
        },
    )
    query: str
    sql: str
    """The plan as it was registered."""
    running: str | None = None
    """The equivalent plan that runs instead; null if the registered one runs."""


class PlacedQuery(Described):
    """The operators of a running query in the global plan."""

    model_config = _CONFIG
    query: str
    class_: str = Field(alias="class")
    state: ActualState
    operators: tuple[OperatorInfo, ...]
    edges: tuple[PlanEdge, ...]
    reads: dict[str, str] = {}
    """The ids of the queries whose results it reads, by name."""


class GlobalPlan(Described):
    """A page of the global plan: the operators of running queries and the edges between them."""

    model_config = ConfigDict(
        **_CONFIG,
        json_schema_extra={
            "examples": [{"streams": {"readings": ["hot_homes-k3xv7q"]}, "queries": [], "next": None}]
        },
    )
    streams: dict[str, tuple[str, ...]]
    """The queries of this page by the stream that they read."""
    queries: tuple[PlacedQuery, ...]
    next: str | None
    """The value of `?after=` for the next page; null at the end."""
