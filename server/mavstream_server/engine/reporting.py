"""Metrics of an engine and its queries, collected on request; takes some 30 us per query."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from itertools import islice

from mavstream_server.core.latency import LatencyHistogram
from mavstream_server.core.metrics import (
    ClassMetrics,
    ClassMetricsReply,
    ConsumerLag,
    EngineMetrics,
    Latency,
    OperatorMetrics,
    QueryMetrics,
    TargetMetrics,
)
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.query import NEW, Memory, RunningQuery
from mavstream_server.engine.sharing.membership import Membership
from mavstream_server.engine.sources.source_task import SourceTask
from mavstream_server.engine.states import OperatorState, QueryState
from mavstream_server.engine.task import Task
from mavstream_server.operators.source import Source
from mavstream_server.scheduling.view import OperatorKind

_MAX_LISTED = 10  # queries that are listed as sharing an operator: there may be hundreds


def engine_metrics(engine: Engine, started: int) -> EngineMetrics:
    """Return the metrics of an engine that started at `started` on its monotonic clock (ns)."""
    return EngineMetrics(
        pid=os.getpid(),
        policy=engine.policy.name,
        uptime_ns=engine.clock.monotonic() - started,
        busy_ns=engine.loop.busy,
        class_busy_ns=dict(engine.loop.class_busy),
        slices=engine.loop.slices,
        ids=tuple(engine.queries),
        cpu_ns=time.process_time_ns(),
        resident_bytes=_resident_bytes(),
        slice_p99_ns=engine.loop.slice_times.percentile(0.99),
        longest_slice_ns=engine.loop.slice_times.longest,
    )


def needed_positions(query: RunningQuery) -> dict[str, int]:
    """Return the lowest position that a running query still reads, by stream."""
    positions: dict[str, int] = {}
    if query.state is QueryState.RUNNING:
        for node in query.request.plan.sources:
            source = query.network.operators[node.name]
            if isinstance(source, Source) and not source.ended:
                position = source.cursor.position
                positions[node.stream] = min(position, positions.get(node.stream, position))
    return positions


def consumer_lags(query: RunningQuery, now: int) -> dict[str, ConsumerLag]:
    """Return how far a running query is behind, by stream; `now` is the time of arrival clocks (ns).

    Of several sources on a stream, the one that is most behind counts.
    """
    lags: dict[str, ConsumerLag] = {}
    if query.state is QueryState.RUNNING:
        shared = {member.names[0]: member.running_source for member in query.shared}
        for node in query.request.plan.sources:
            task = shared.get(node.name) or query.sources[node.name]
            if task.work.ended:
                continue
            rows = task.work.cursor.unread_rows
            since = task.work.next_arrival if rows else None
            lag = ConsumerLag(rows, 0 if since is None else max(now - since, 0))
            lags[node.stream] = max(lag, lags.get(node.stream, lag))
    return lags


def query_metrics(query: RunningQuery, epoch: int) -> QueryMetrics:
    """Return the metrics of a query in its present state."""
    query.settle()
    running = query.state is QueryState.RUNNING
    operators = []
    shared = {name: member for member in query.shared for name in member.names}
    for name, operator in query.network.operators.items():
        member = shared.get(name)
        if isinstance(operator, Source):
            if member is None:
                metrics = _source_metrics(query.sources[name], running)
            else:
                metrics = _source_metrics(member.source, running)._replace(
                    cost_per_tuple_ns=_measured_cost(member.running_source)
                )
        else:
            metrics = _task_metrics(query.tasks[name]) if member is None else _shared_metrics(member, name)
        if member is not None:
            others = (other.query.id for other in member.pipeline.members if other.query is not query)
            metrics = metrics._replace(
                sharers=len(member.pipeline.members), shared_with=tuple(islice(others, _MAX_LISTED))
            )
        if not name.startswith(NEW):
            operators.append(metrics)
    memory = query.memory
    return QueryMetrics(
        id=query.id,
        state=query.state.value,
        reason=query.reason,
        class_name=query.class_name,
        epoch=epoch,
        offset=query.output.sink.offset,
        rows_in=query.rows_in,
        rows_out=query.output.rows,
        queued_bytes=memory.queued,
        state_bytes=memory.state,
        backlog_bytes=memory.backlog,
        latency=latency_of(query.output.latency),
        counters=query.counters,
        positions=needed_positions(query),
        operators=tuple(operators),
        shedding_intervals=query.shedding_intervals,
        plan_version=query.migrations.version,
        plan_migrations=query.migrations.count,
        migration=query.migrations.stage and query.migrations.stage.value,
        migration_note=query.migrations.note,
    )


def target_metrics(query: RunningQuery, epoch: int) -> TargetMetrics:
    """Return the metrics that a query's targets are compared with; takes a third of `query_metrics`."""
    sources = query.network.sources
    memory = query.memory
    return TargetMetrics(
        epoch=epoch,
        rows_in=query.rows_in,
        queued_bytes=memory.queued,
        state_bytes=memory.state,
        backlog_bytes=memory.backlog,
        latency=latency_of(query.output.latency),
        shed=sum(source.counters["shed"] for source in sources),
        share=max((source.shedder.share for source in sources if source.shedder is not None), default=0.0),
        weight=query.weight,
    )


def class_metrics(engine: Engine) -> ClassMetricsReply:
    """Return the metrics of classes: cheaper than those of all their queries, and small to send.

    The memory of a shared pipeline counts once, in the class that it runs in, so that totals add up.
    """
    members: dict[str, list[RunningQuery]] = defaultdict(list)
    for query in engine.queries.values():
        members[query.class_name].append(query)
    pipelines: dict[str, list[RunningQuery]] = defaultdict(list)
    for pipeline in engine.sharing.pipelines:
        pipelines[pipeline.class_name].append(pipeline)
    return ClassMetricsReply(
        {name: _metrics_of_class(members[name], pipelines[name]) for name in tuple(members)}
    )


def _metrics_of_class(queries: list[RunningQuery], pipelines: list[RunningQuery]) -> ClassMetrics:
    latency, memory = LatencyHistogram(), Memory(0, 0, 0)
    for query in queries:
        latency.merge(query.output.latency)
    for holder in (*queries, *pipelines):
        memory = memory.plus(holder.own_memory)
    return ClassMetrics(
        queries=len(queries),
        rows_in=sum(query.rows_in for query in queries),
        rows_out=sum(query.output.rows for query in queries),
        queued_bytes=memory.queued,
        state_bytes=memory.state,
        backlog_bytes=memory.backlog,
        latency=latency_of(latency),
    )


def latency_of(histogram: LatencyHistogram) -> Latency:
    """Return the non-empty buckets and totals of a histogram."""
    if not histogram.count:
        return Latency()
    indices = histogram.buckets.nonzero()[0]
    counts = histogram.buckets[indices].tolist()
    return Latency(
        histogram.count, histogram.total, histogram.maximum, dict(zip(indices.tolist(), counts, strict=True))
    )


def _source_metrics(task: SourceTask, running: bool) -> OperatorMetrics:
    source = task.work
    rows, nbytes = source.cursor.backlog if running and not source.ended else (0, 0)
    return OperatorMetrics(
        name=source.name,
        operator=source.kind,
        kind=OperatorKind.SOURCE.value,
        state=(OperatorState.READY if nbytes else OperatorState.SUSPEND).value,
        queued=rows,
        queued_bytes=nbytes,
        state_bytes=0,
        cost_per_tuple_ns=_measured_cost(task),
        selectivity=1.0,
        tuples=source.rows_out,
        rows_out=source.rows_out,
        counters=dict(source.counters),
        tuple_bytes=source.bytes_out / source.rows_out if source.rows_out else task.statistics.tuple_size,
    )


def _measured_cost(task: SourceTask) -> float:
    return task.statistics.cost_per_tuple if task.statistics.tuples else 0.0


def _task_metrics(task: Task) -> OperatorMetrics:
    statistics, work = task.statistics, task.work
    return OperatorMetrics(
        name=work.name,
        operator=work.kind,
        kind=task.kind.value,
        state=task.state.value,
        queued=task.queued,
        queued_bytes=task.queued_bytes,
        state_bytes=work.state_bytes,
        cost_per_tuple_ns=statistics.cost_per_tuple,
        selectivity=statistics.selectivity,
        tuples=statistics.tuples,
        rows_out=work.rows_out,
        counters=dict(work.counters),
        tuple_bytes=statistics.tuple_size,
        input_bytes=statistics.input_size,
    )


def _shared_metrics(member: Membership, name: str) -> OperatorMetrics:
    """Return the metrics of an operator that a shared pipeline runs, with the query's own counters."""
    own = _task_metrics(member.tasks[name])
    task = member.task(name)
    if task is None:
        return own
    return _task_metrics(task)._replace(name=name, rows_out=own.rows_out, counters=own.counters)


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:  # not Linux: the peak is all there is
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def oldest_arrival(queries: Iterable[RunningQuery]) -> int | None:
    """Return the lowest arrival time (ns) of the rows and marks in and between operators of active queries.

    Rows that were not read yet are not included: the logs know their arrival times.
    """
    found: list[int] = []
    for query in queries:
        if query.active:
            shared = [
                operator for member in query.shared for operator in member.pipeline.network.operators.values()
            ]
            for operator in (*query.network.operators.values(), *shared):
                batches = [batch for queue in operator.inputs for batch in queue]
                found += [int(batch.arrival.min()) for batch in batches if batch.size]
                marks = [batch.mark.arrival for batch in batches if batch.mark is not None]
                found += [arrival for arrival in marks if arrival]
                held = (operator.oldest_held, operator.oldest_unfinished)
                found += [arrival for arrival in held if arrival is not None]
    return min(found, default=None)
