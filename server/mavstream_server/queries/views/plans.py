"""API views of plans: a query's operators with their metrics, and the global plan of all queries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from mavstream_protocol.errors import InvalidObject
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.streams import field_specs
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_protocol.wire.plans import (
    GlobalPlan,
    PlacedQuery,
    PlanEdge,
    QueryPlan,
    QuerySql,
    UpstreamQuery,
)
from mavstream_protocol.wire.resources import ActualState, OperatorInfo
from mavstream_server.core.errors import Conflict
from mavstream_server.core.metrics import QueryMetrics
from mavstream_server.engine.states import OperatorState
from mavstream_server.planning.declared import declared
from mavstream_server.planning.paths import OUTPUT
from mavstream_server.queries.query import Query
from mavstream_server.queries.views.metrics import operator_info
from mavstream_server.queries.views.plan_units import PlanUnits

_ENDED = frozenset((ActualState.FINISHED, ActualState.STOPPED, ActualState.FAILED))


def query_plan(
    query: Query,
    plan: TypedPlan | None,
    stats: QueryMetrics | None,
    chain: tuple[UpstreamQuery, ...] = (),
) -> QueryPlan:
    """Return a query's plan; `plan` is the registered one, None if it cannot be typed any more."""
    current = current_stats(query, stats)
    running = query.running_plans.running(current)
    plan = plan if running is None else running.typed
    written = query.record.spec.plan if running is None else running.plan
    ended = query.state in _ENDED
    units = None
    if plan is not None and current is not None and not ended:
        units = PlanUnits(plan, current.operators)
    return QueryPlan(
        query=query.id,
        state=query.state,
        plan=query.record.spec.plan,
        running=running and running.plan,
        swaps=0 if current is None else current.plan_migrations,
        swap=current and current.migration,
        swap_note=current and current.migration_note,
        schemas={} if plan is None else {name: field_specs(node.schema) for name, node in plan.nodes.items()},
        paths=() if plan is None else plan.paths(),
        operator_paths=() if units is None else units.paths,
        segments=() if units is None else units.segments,
        simplified_segments=() if units is None else units.simplified_segments,
        edges=() if plan is None else edges_of(plan),
        chain=chain,
        operators=_stopped(plan, written) if ended else _running(units, current),
    )


async def query_sql(plan: QueryPlan, write: Callable[[Plan], Awaitable[str]]) -> QuerySql:
    """Return the plans of a query as SQL; raises Conflict if what they read has changed or is gone."""
    try:
        sql = await write(plan.plan)
        running = None if plan.running is None else await write(plan.running)
    except InvalidObject as error:
        raise Conflict(
            f"query '{plan.query}' cannot be written as SQL, because what it reads has changed or is gone: "
            f"{error}; get its plan without ?format=sql",
            code="plan_outdated",
        ) from None
    return QuerySql(query=plan.query, sql=sql, running=running)


def current_stats(query: Query, stats: QueryMetrics | None) -> QueryMetrics | None:
    """Return the metrics if they are of the query's current epoch, else None."""
    return stats if stats is not None and stats.epoch == query.epoch else None


def global_plan(
    queries: Iterable[Query], stats: dict[str, QueryMetrics], following: str | None
) -> GlobalPlan:
    """Return the operators of queries that the engine runs, and the streams that they read."""
    placed = []
    readers: dict[str, list[str]] = {}
    for query in queries:
        if query.plan is None:
            continue
        current = current_stats(query, stats.get(query.id))
        running = query.running_plans.running(current)
        for stream in sorted(query.streams):
            readers.setdefault(stream, []).append(query.id)
        placed.append(
            PlacedQuery(
                query=query.id,
                **{"class": query.class_name},
                state=query.state,
                operators=_operators(current),
                edges=edges_of(query.plan if running is None else running.typed),
                reads=dict(query.upstream),
            )
        )
    streams = {name: tuple(ids) for name, ids in sorted(readers.items())}
    return GlobalPlan(streams=streams, queries=tuple(placed), next=following)


def edges_of(plan: TypedPlan) -> tuple[PlanEdge, ...]:
    """Return the edges between operators, bottom-up, including the output operator."""
    kinds = ((source, "stream" if source.query is None else "query") for source in plan.sources)
    found = [_edge(f"{kind}:{source.stream}", source.name) for source, kind in kinds]
    for node in plan.nodes.values():
        found += [_edge(ref.node, node.name, ref.output) for ref in node.inputs]
        if node.lookup is not None:
            found.append(_edge(f"table:{node.lookup.table}", node.name))
    return (*found, _edge(plan.root.node, OUTPUT, plan.root.output))


def _edge(from_: str, to: str, output: str | None = None) -> PlanEdge:
    return PlanEdge(**{"from": from_}, to=to, output=output)


def _operators(stats: QueryMetrics | None) -> tuple[OperatorInfo, ...]:
    return () if stats is None else tuple(map(operator_info, stats.operators))


def _running(units: PlanUnits | None, stats: QueryMetrics | None) -> tuple[OperatorInfo, ...]:
    operators = _operators(stats)
    return operators if units is None else units.described(operators)


def _stopped(plan: TypedPlan | None, written: Plan) -> tuple[OperatorInfo, ...]:
    """Return the operators of a query that has ended, with their declared properties."""
    if plan is None:
        return ()
    kinds = {name: node.op for name, node in written.nodes.items()}
    nodes = [name for name, node in plan.nodes.items() if node.has_operator]
    return tuple(_stopped_operator(plan, name, kinds.get(name, "output")) for name in (*nodes, OUTPUT))


def _stopped_operator(plan: TypedPlan, name: str, kind: str) -> OperatorInfo:
    statistics = declared(plan, name)
    return OperatorInfo(
        name=name,
        operator=kind,
        state=OperatorState.STOP,
        queued=0,
        cost_per_tuple_us=statistics.cost_per_tuple / 1000,
        selectivity=statistics.selectivity,
        tuple_bytes=statistics.tuple_size,
        tuples=0,
        counters={},
    )
