"""Plans as they run: a query's operators with what they measured, and all queries' operators together."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, Field

from mavstream_protocol.plan import Plan
from mavstream_protocol.streams import FieldSpec, field_specs
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_protocol.wire.resources import ActualState, OperatorInfo
from mavstream_server.core.metrics import QueryMetrics
from mavstream_server.planning.instantiator import OUTPUT
from mavstream_server.queries.metrics import operator_info
from mavstream_server.queries.query import Query

_CONFIG = ConfigDict(frozen=True, use_attribute_docstrings=True, serialize_by_alias=True)


class PlanEdge(BaseModel):
    """Rows flow from one operator, or from a stream, to another; or are looked up in a table."""

    model_config = _CONFIG
    from_: str = Field(serialization_alias="from")
    """An operator, `stream:NAME` or `table:NAME`."""
    to: str
    output: str | None = None
    """Which output of a split is read."""


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
                    "edges": [{"from": "stream:readings", "to": "in"}, {"from": "in", "to": "hot"}],
                    "operators": [
                        {
                            "name": "hot",
                            "operator": "select",
                            "state": "suspend",
                            "queued": 0,
                            "cost_per_tuple_us": 0.05,
                            "selectivity": 0.25,
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
    edges: tuple[PlanEdge, ...]
    operators: tuple[OperatorInfo, ...]
    """As they run; empty when the query has ended or is starting."""


class PlacedQuery(BaseModel):
    """A running query's part of the global plan."""

    model_config = _CONFIG
    query: str
    class_: str = Field(serialization_alias="class")
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


def query_plan(query: Query, plan: TypedPlan | None, stats: QueryMetrics | None) -> QueryPlan:
    """Return a query's plan; `plan` is the registered one, None where it cannot be typed any more."""
    current = current_stats(query, stats)
    running = query.swapped.running(current)
    plan = plan if running is None else running.typed
    return QueryPlan(
        query=query.id,
        state=query.state,
        plan=query.record.spec.plan,
        running=running and running.plan,
        swaps=0 if current is None else current.plan_swaps,
        swap=current and current.swap,
        swap_note=current and current.swap_note,
        schemas={} if plan is None else {name: field_specs(node.schema) for name, node in plan.nodes.items()},
        paths=() if plan is None else plan.paths(),
        edges=() if plan is None else edges_of(plan),
        operators=_operators(current),
    )


def current_stats(query: Query, stats: QueryMetrics | None) -> QueryMetrics | None:
    """Return figures if they are of the query's present epoch."""
    return stats if stats is not None and stats.epoch == query.epoch else None


def global_plan(
    queries: Iterable[Query], stats: dict[str, QueryMetrics], following: str | None
) -> GlobalPlan:
    """Return the operators of queries that the engine has, and what they read."""
    placed = []
    readers: dict[str, list[str]] = {}
    for query in queries:
        if query.plan is None:
            continue
        current = current_stats(query, stats.get(query.id))
        running = query.swapped.running(current)
        for stream in sorted(query.streams):
            readers.setdefault(stream, []).append(query.id)
        placed.append(
            PlacedQuery(
                query=query.id,
                class_=query.class_name,
                state=query.state,
                operators=_operators(current),
                edges=edges_of(query.plan if running is None else running.typed),
            )
        )
    streams = {name: tuple(ids) for name, ids in sorted(readers.items())}
    return GlobalPlan(streams=streams, queries=tuple(placed), next=following)


def edges_of(plan: TypedPlan) -> tuple[PlanEdge, ...]:
    """Return what flows where, bottom-up, the output operator included."""
    found = [PlanEdge(from_=f"stream:{source.stream}", to=source.name) for source in plan.sources]
    for node in plan.nodes.values():
        found += [PlanEdge(from_=ref.node, to=node.name, output=ref.output) for ref in node.inputs]
        if node.lookup is not None:
            found.append(PlanEdge(from_=f"table:{node.lookup.table}", to=node.name))
    return (*found, PlanEdge(from_=plan.root.node, to=OUTPUT, output=plan.root.output))


def _operators(stats: QueryMetrics | None) -> tuple[OperatorInfo, ...]:
    return () if stats is None else tuple(map(operator_info, stats.operators))
