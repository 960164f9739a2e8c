"""Handover: a running query gets the operators of another plan, at a quiescent point.

Its output stays, and so do operators that are the same in both plans. The others are those of the warm-up,
which have the state that they would have if the new plan had always run, or begin anew.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mavstream_protocol.typed_plan import TypedNode, TypedPlan, TypedSource
from mavstream_server.columns.batch import BEGIN_OF_TIME, Mark, mark_only
from mavstream_server.engine.migration import frontier
from mavstream_server.engine.migration.warm_up import WarmUp
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.query_request import QueryRequest
from mavstream_server.engine.sources.source_task import SourceTask
from mavstream_server.engine.task import Task
from mavstream_server.operators.operator import Operator
from mavstream_server.operators.source import Source
from mavstream_server.planning.declared import declared
from mavstream_server.planning.instantiator import connect, needs_of
from mavstream_server.planning.paths import OUTPUT, paths_to_output
from mavstream_server.scheduling.statistics import StatisticsCollector


@dataclass(slots=True)
class Handover:
    """What a query gets, and from where."""

    query: RunningQuery
    warm: WarmUp
    request: QueryRequest
    """The request of the query from now on."""
    kept: frozenset[str]
    """The nodes whose operators stay, sources included."""
    warmed: frozenset[str]
    """The stateful nodes that the warm-up has prepared, with the rows of all sources below."""
    fresh: Mapping[str, Operator]
    """The stateful operators that begin anew, by node."""
    task: Callable[[RunningQuery, Operator], Task]
    source: Callable[[RunningQuery, Source], SourceTask]
    left: list[SourceTask] = field(default_factory=list)
    """The sources that the query does not have any more; set by `apply`."""
    added: list[tuple[str, SourceTask]] = field(default_factory=list)
    """Its new sources, by stream; set by `apply`."""

    def apply(self) -> None:
        """Exchange the operators; the query must be unknown to policies meanwhile."""
        query, network, plan = self.query, self.query.network, self.request.plan
        counters, old_sources = query.counters, dict(query.sources)
        output, before = network.output, dict(network.operators)
        for operator in (*before.values(), *self.warm.network.operators.values()):
            for queue in tuple(operator.all_outputs):
                operator.detach(queue)
        query.request = self.request
        query.positions = array("q", [0, 0] * len(list(plan.sources)))
        operators: dict[str, Operator] = {}
        marks: dict[str, Mark] = {}
        tasks: dict[str, Task] = {}
        sources: dict[str, SourceTask] = {}
        for node in plan.operating:
            name = node.name
            if name in self.kept:
                operator = before[name]
                for queue, reference in zip(operator.inputs, node.inputs, strict=True):
                    operators[reference.node].attach(queue, reference.output)
            else:
                operator = self._operator(node)
                operator.inputs.clear()
                connect(network.account, operator, node.inputs, operators)
                operator.counters.clear()
                operator.counters.update(Counter(counters.get(name)))
                if node.inputs and name not in self.warmed:
                    frontier.begin_at(node, operator, marks)
            operators[name] = operator
            marks[name] = frontier.mark_above(node, operator, marks)
            if isinstance(operator, Source):
                sources[name] = old_sources[name] if name in self.kept else self.source(query, operator)
                continue
            tasks[name] = query.tasks[name] if name in self.kept else self.task(query, operator)
            if name not in self.kept:
                tasks[name].collector = StatisticsCollector(declared(plan, name))
        operators[plan.root.node].attach(output.inputs[0], plan.root.output)
        operators[OUTPUT], tasks[OUTPUT] = output, query.tasks[OUTPUT]
        self.left = [task for name, task in old_sources.items() if sources.get(name) is not task]
        query.leave(self.left)
        network.operators.clear()
        network.operators.update(operators)
        network.paths = paths_to_output(plan)
        query.tasks, query.sources = tasks, sources
        self._connect()
        self.added = [(one.stream, sources[one.name]) for one in plan.sources if one.name not in self.kept]

    def _operator(self, node: TypedNode) -> Operator:
        made = self.fresh.get(node.name)
        return self.warm.network.operators[node.name] if made is None else made

    def _connect(self) -> None:
        query, plan = self.query, self.request.plan
        columns = plan.needed_columns()
        leaves = {path[0] for path in query.network.paths}
        for index, source in enumerate(plan.sources):
            reading = query.sources[source.name]
            reading.slot = 2 * index
            reading.work.carry(columns[source.name])
            reading.work.provide(needs_of(plan))
        for name, task in query.tasks.items():
            task.leaf = name in leaves
        query.network.choose_watermarks()
        query.follow_sharing()
        query.connect()

    def announce_gaps(self) -> None:
        """Tell operators that begin anew that they have not seen the rows so far, as after a pause.

        Called after `apply`, when policies know the operators.
        """
        plan, network = self.request.plan, self.query.network
        sources = {source.name: source for source in network.sources}
        touched = frontier.touched(plan, sources)
        arrival = max((source.frontier.arrival for source in sources.values()), default=0)
        incomplete: set[str] = set()  # nodes that begin anew, and those above them, which get their marks
        for node in plan.operating:
            below = [reference.node for reference in node.inputs]
            for port, name in enumerate(below):
                if node.name in self.fresh and name not in incomplete and touched[name] != BEGIN_OF_TIME:
                    mark = Mark(arrival=arrival, gap=touched[name])
                    network.operators[node.name].inputs[port].append(mark_only(mark))
            if node.name in self.fresh or incomplete.intersection(below):
                incomplete.add(node.name)


def unread_without(query: RunningQuery, plan: TypedPlan) -> str | None:
    """Return the query of which a query has yet to read results that lack columns which a new plan reads."""
    before, after = query.request.plan.needed_columns(), plan.needed_columns()
    for node in plan.sources:
        source = source_on(query, node)
        if source is None or source.cursor.position >= source.cursor.reader.begin_of_columns:
            continue
        alike = (one.name for one in query.request.plan.sources if one.stream == node.stream)
        if not set(after[node.name]) <= {column for name in alike for column in before[name]}:
            return node.stream
    return None


def source_on(query: RunningQuery, node: TypedSource) -> Source | None:
    """Return the source of a query on the same stream that has read furthest; None if there is none."""
    nodes = [n for n in query.request.plan.sources if (n.stream, n.query) == (node.stream, node.query)]
    found = [query.sources[n.name].work for n in nodes]
    return max(found, key=lambda source: source.cursor.position, default=None)
