"""Attaches queries to shared pipelines, and detaches them with a copy of the pipeline's state.

All of it happens between two slices. The caller has checked that the query's prefix and the pipeline have
equal state, so that their results are identical from then on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from itertools import count
from typing import TYPE_CHECKING

from mavstream_server.engine import snapshot
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.query_request import QueryRequest
from mavstream_server.engine.sharing.membership import Membership
from mavstream_server.engine.sharing.prefix import lower_part
from mavstream_server.engine.sharing.running_prefix import RunningPrefix
from mavstream_server.engine.sharing.shared_pipeline import SharedPipeline
from mavstream_server.engine.states import OperatorState
from mavstream_server.log.cursor import Cursor
from mavstream_server.operators.fan_out import FanOut
from mavstream_server.operators.operator import Operator
from mavstream_server.operators.queue import Queue
from mavstream_server.operators.source import Source
from mavstream_server.operators.windows.windowed import WindowedOperator
from mavstream_server.planning.instantiator import instantiate_below
from mavstream_server.planning.paths import OUTPUT
from mavstream_server.planning.run_options import RunOptions

if TYPE_CHECKING:
    from mavstream_server.engine.engine import Engine


class Attaching:
    """Creates the shared pipelines of an engine, attaches queries to them and detaches queries.

    `gathers` is called with a pipeline that starts to buffer rows, `crowded` with one that has a
    member with full queues.
    """

    def __init__(
        self,
        engine: Engine,
        gathers: Callable[[SharedPipeline], None],
        crowded: Callable[[SharedPipeline], None],
    ) -> None:
        self._engine = engine
        self._gathers = gathers
        self._crowded = crowded
        self._numbers = count(1)

    def start(
        self, prefix: RunningPrefix, depth: int, columns: tuple[str, ...], class_name: str
    ) -> SharedPipeline:
        """Start a shared pipeline with the state and position of a running prefix; it has no members yet."""
        query = prefix.query
        pipeline = self._build(query, prefix.definition.nodes[: depth + 1], prefix, columns, class_name)
        tasks = [query.tasks[name] for name in prefix.definition.nodes[1 : depth + 1]]
        for mine, task in zip(tasks, pipeline.tasks.values(), strict=False):
            task.collector = copy(mine.collector)
        _copy_into(pipeline, prefix.operators(depth))
        self._engine.start_pipeline(pipeline)
        return pipeline

    def widen(self, pipeline: SharedPipeline, columns: tuple[str, ...]) -> SharedPipeline:
        """Replace an idle shared pipeline by one that emits more columns; its members move along."""
        member = pipeline.members[0]
        wider = self._build(member.query, member.names, member.prefix, columns, pipeline.class_name)
        _copy_into(wider, member.theirs)
        self._engine.start_pipeline(wider)
        for member in pipeline.members:
            member.settle()
            member.join(wider)
            wider.add(member)
            member.query.follow_sharing()
        pipeline.members = []
        self._engine.stop_pipeline(pipeline)
        _apply_limits(wider)
        return wider

    def attach(self, prefix: RunningPrefix, depth: int, pipeline: SharedPipeline) -> None:
        """Attach a query: the pipeline runs its prefix from now on. Their states must agree."""
        query = prefix.query
        member = Membership(prefix, depth, pipeline)

        def change() -> None:
            self._engine.intake.withdraw(member.source)
            for name in member.names:
                query.tasks.pop(name, None)
                query.sources.pop(name, None)
            query.shared.append(member)
            query.follow_sharing()

        self._engine.policy_host.rearrange(query, change)
        for own in member.own:
            if isinstance(own, WindowedOperator):
                own.clear()
        prefix.membership = member
        pipeline.add(member)
        _apply_limits(pipeline)

    def detach(self, member: Membership) -> None:
        """Detach a query: it runs its prefix itself, with copies of the pipeline's state and queues."""
        query, pipeline = member.query, member.pipeline
        for their in member.theirs:
            their.finish()
        pipeline.fan_out.flush()
        for batch in pipeline.fan_out.inputs[0]:
            member.last.emit(member.narrowed(batch))
        member.settle()
        _copy_state(member.theirs, member.own)

        def change() -> None:
            self.drop(member)
            _restore_tasks(query, member)
            for own, their in zip(member.own[1:], member.theirs[1:], strict=True):
                _copy_queue(their.inputs[0], own.inputs[0])
            for task in member.tasks.values():
                task.state = OperatorState.READY if task.ready else OperatorState.SUSPEND

        self._engine.policy_host.rearrange(query, change)
        self._engine.intake.add(member.prefix.definition.stream, member.source)

    def drop(self, member: Membership) -> None:
        """Remove the membership of a query that has ended; no state is copied back."""
        member.settle()
        member.prefix.membership = None
        member.query.shared.remove(member)
        member.query.follow_sharing()
        member.pipeline.remove(member)
        for index, their in enumerate(member.theirs):
            if isinstance(their, WindowedOperator):
                users = [other.own[index] for other in member.pipeline.members]
                their.work_only_for(own for own in users if isinstance(own, WindowedOperator))
        _apply_limits(member.pipeline)

    def follow(self, pipeline: SharedPipeline) -> None:
        """Apply the latency targets and memory limits that the members have now."""
        _apply_limits(pipeline)

    def _build(
        self,
        query: RunningQuery,
        names: tuple[str, ...],
        prefix: RunningPrefix,
        columns: tuple[str, ...],
        class_name: str,
    ) -> SharedPipeline:
        engine, plan = self._engine, lower_part(query.request.plan, names)
        request = QueryRequest(
            f"shared:{next(self._numbers)}", plan, class_name, RunOptions(query.request.options.on_error)
        )

        def cursor(stream: str) -> Cursor:
            return engine.intake.readers[stream].cursor(0)

        output = FanOut(
            OUTPUT,
            columns,
            engine.assembly.train.full,
            lambda: pipeline.has_more,
            lambda: self._gathers(pipeline),
            lambda: self._crowded(pipeline),
        )
        network = instantiate_below(
            plan, request.options, cursor, engine.assembly.table, columns, prefix.definition.needs, output
        )
        pipeline = engine.assembly.of(request, network, SharedPipeline)
        return pipeline


def _copy_into(pipeline: SharedPipeline, operators: Sequence[Operator]) -> None:
    """Copy the state of other operators of the same nodes into a new pipeline."""
    _copy_state(operators, list(pipeline.network.operators.values())[: len(operators)])


def _copy_state(origins: Sequence[Operator], targets: Sequence[Operator]) -> None:
    """Copy operator states through a snapshot, so that no object is shared.

    The targets retain their own counters, their shedding intervals and the number of their first window.
    """
    saved = snapshot.encode({str(index): origin.save() for index, origin in enumerate(origins)})
    states = snapshot.decode(saved)
    for index, (origin, target) in enumerate(zip(origins, targets, strict=True)):
        counters = Counter(target.counters)
        if isinstance(origin, Source) and isinstance(target, Source):
            # A position alone does not say which of the marks ahead of it were read.
            target.cursor.restore(origin.cursor.state)
            target.load({**states[str(index)], "shedding": target.save()["shedding"]})
            target.cursor.restore(origin.cursor.state)
        elif isinstance(target, WindowedOperator):
            target.take_over(states[str(index)])
        else:
            target.load(states[str(index)])
        target.counters.clear()
        target.counters.update(counters)


def _copy_queue(source: Queue, target: Queue) -> None:
    """Copy the batches of a queue into another one without waking its reader."""
    filled, target.filled = target.filled, _ignore
    for batch in source:
        target.push(batch)
    target.filled = filled


def _restore_tasks(query: RunningQuery, member: Membership) -> None:
    """Restore the tasks of the operators that were inactive during a membership, in network order."""
    names = query.network.operators
    tasks, sources = query.tasks | member.tasks, query.sources | {member.names[0]: member.source}
    query.tasks = {name: tasks[name] for name in names if name in tasks}
    query.sources = {name: sources[name] for name in names if name in sources}


def _apply_limits(pipeline: SharedPipeline) -> None:
    """Set the longest linger and the memory limit of a pipeline to the smallest of its members'."""
    lingers = [member.source.linger for member in pipeline.members]
    if lingers:
        for task in pipeline.sources.values():
            task.linger.bound(min(each.limit for each in lingers), all(each.planned for each in lingers))
    limits = [
        limit for member in pipeline.members if (limit := member.query.request.memory_limit) is not None
    ]
    pipeline.lowest_limit = min(limits, default=None)


def _ignore() -> None:
    """Do nothing: replaces a queue's callback while batches are copied."""
