"""Plans as they run: a query's operators with what was measured, and all queries' operators together."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from mavstream_protocol.plan import Plan
from mavstream_protocol.streams import FieldSpec
from mavstream_protocol.wire.resources import ActualState, OperatorInfo

_CONFIG = ConfigDict(
    frozen=True, use_attribute_docstrings=True, populate_by_name=True, serialize_by_alias=True
)

_UNIT: dict[str, Any] = {
    "operators": ["hot", "#output"],
    "processing_capacity": 13.3e6,
    "memory_release_capacity": 240e6,
}


class PlanEdge(BaseModel):
    """Rows flow from one operator, or from a stream, to another; or are looked up in a table."""

    model_config = _CONFIG
    from_: str = Field(alias="from")
    """An operator, `stream:NAME` or `table:NAME`."""
    to: str
    output: str | None = None
    """Which output of a split is read."""


class OperatorUnit(BaseModel):
    """Operators that a policy runs as one, bottom-up: a path, a segment or a simplified segment."""

    model_config = _CONFIG
    operators: tuple[str, ...]
    """Names, the lowest first; `#output` hands answers to their log."""
    processing_capacity: float
    """Rows per second that it could take in, by itself."""
    memory_release_capacity: float
    """Bytes per second that it would free then; negative where it makes rows more or larger."""


class QueryPlan(BaseModel):
    """A query's plan, what was worked out of it, and how its operators do."""

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
    """What runs instead: an equivalent plan that the optimizer found cheaper; null if that is `plan`."""
    swaps: int = 0
    """How often the plan was swapped since the query was last instantiated."""
    swap: str | None = None
    """How far a swap that is under way has come: `draining` (what is on its way is worked in), `warming`
    (new operators get to know what the old ones know) or `leaving` (it was given up)."""
    swap_note: str | None = None
    """Why the last swap was given up, if it was."""
    schemas: dict[str, tuple[FieldSpec, ...]]
    """By node of the plan that runs; empty if the streams of an ended query are gone."""
    paths: tuple[tuple[str, ...], ...]
    """Operator paths, leaf to root."""
    operator_paths: tuple[OperatorUnit, ...] = ()
    """The paths without their sources, as the policy `path_capacity` runs them, with what they can do by the
    statistics of now; like segments, empty while the query does not run."""
    segments: tuple[OperatorUnit, ...] = ()
    """As `segment` runs them."""
    simplified_segments: tuple[OperatorUnit, ...] = ()
    """As `simplified_segment` runs them with its default gamma."""
    edges: tuple[PlanEdge, ...]
    operators: tuple[OperatorInfo, ...]
    """As they run, each with its state: `ready` (something waits for it), `run`, `suspend` (nothing does) or
    `stop` (its query has ended; with declared figures). Empty while the query is starting."""


class PlacedQuery(BaseModel):
    """A running query's part of the global plan."""

    model_config = _CONFIG
    query: str
    class_: str = Field(alias="class")
    state: ActualState
    operators: tuple[OperatorInfo, ...]
    edges: tuple[PlanEdge, ...]


class GlobalPlan(BaseModel):
    """All running queries' operators and what flows between them; in parts, by query."""

    model_config = ConfigDict(
        **_CONFIG,
        json_schema_extra={
            "examples": [{"streams": {"readings": ["hot_homes-k3xv7q"]}, "queries": [], "next": None}]
        },
    )
    streams: dict[str, tuple[str, ...]]
    """The queries of this part that read a stream."""
    queries: tuple[PlacedQuery, ...]
    next: str | None
    """Give it to `?after=` for the following part; null at the end."""
