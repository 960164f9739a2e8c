"""Replaces the operators of a running query by those of another plan; its sources and output are retained.

Operators that are equal in both plans are retained, too. The others are created in parallel with the old ones
and read the same input, but their output is discarded. When they have built up their state, all operators
are connected according to the new plan, and the old ones are removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from mavstream_protocol.typed_plan import TypedNode, TypedPlan
from mavstream_server.columns.batch import BEGIN_OF_TIME, Mark
from mavstream_server.engine.migration import frontier
from mavstream_server.engine.migration.reuse import kept_nodes
from mavstream_server.engine.query import NEW, RunningQuery
from mavstream_server.engine.states import OperatorState
from mavstream_server.engine.task import Task
from mavstream_server.operators.operator import Operator
from mavstream_server.operators.source import Source
from mavstream_server.planning.declared import declared
from mavstream_server.planning.instantiator import OperatorMaker, connect, needs_of
from mavstream_server.planning.paths import OUTPUT, paths_to_output
from mavstream_server.scheduling.statistics import StatisticsCollector

TaskMaker = Callable[[Operator], Task]


class OperatorExchange:
    """The exchange of one query's operators. All but `abandon` must be called at quiescent points."""

    def __init__(self, query: RunningQuery, plan: TypedPlan) -> None:
        self.query = query
        self.plan = plan
        self.kept = kept_nodes(query.request.plan, plan, query.request.options.one_time)
        self._operators: dict[str, Operator] = {}
        """The new plan's operators, by node: those that are retained, sources included, and new ones."""
        self._bounds: dict[str, int] = {}
        """The latest time (us) of incomplete answers, by new stateful node; empty if there were no rows."""
        self.reach = 0
        """How far the latest of these times is after the latest row (us)."""

    @property
    def begun(self) -> bool:
        """Whether the new operators were created."""
        return bool(self._operators)

    @property
    def anew(self) -> list[TypedNode]:
        """The nodes whose new operators are stateful, so that they lack earlier rows."""
        return [node for node in self._new_nodes() if node.stateful]

    def _new_nodes(self) -> Iterator[TypedNode]:
        return (node for node in self.plan.operating if node.name not in self.kept)

    # In parallel with the old operators

    def begin(self, make: OperatorMaker, task: TaskMaker) -> None:
        """Create the new operators and connect them to the inputs of the old ones.

        Their progress is set to the watermarks so far, as if they had run from the start.
        """
        query, network = self.query, self.query.network
        marks: dict[str, Mark] = {}
        leaves = {path[0] for path in paths_to_output(self.plan)}
        for node in self.plan.operating:
            name = node.name
            if name in self.kept:
                operator = network.operators[name]
            else:
                operator = make(node)
                operator.name = NEW + name
                frontier.begin_at(node, operator, marks)
                connect(network.account, operator, node.inputs, self._operators)
                network.operators[operator.name] = operator
                new_task = query.tasks[operator.name] = task(operator)
                new_task.collector = StatisticsCollector(declared(self.plan, name))
                new_task.leaf = name in leaves
            self._operators[name] = operator
            marks[name] = frontier.mark_above(node, operator, marks)
        sources = self._sources()
        touched = frontier.touched(self.plan, sources)
        latest = max(touched[name] for name in sources)
        self._bounds = {node.name: touched[node.name] for node in self.anew if latest != BEGIN_OF_TIME}
        self.reach = max((bound + 1 - latest for bound in self._bounds.values()), default=0)
        before, after = query.request.plan.needed_columns(), self.plan.needed_columns()
        for name, source in sources.items():
            source.carry(tuple(dict.fromkeys((*before[name], *after[name]))))
        query.connect()

    def _sources(self) -> dict[str, Source]:
        return {name: o for name, o in self._operators.items() if isinstance(o, Source)}

    @property
    def ahead(self) -> int:
        """How far watermarks must still advance until all new state is complete (us); 0 or less if it is."""
        marks = frontier.marks(self.plan, self._operators)
        return max((bound + 1 - marks[name].watermark for name, bound in self._bounds.items()), default=0)

    @property
    def hopeful(self) -> bool:
        """Whether `ahead` may be 0: a cheap check that is never false when `ahead` is 0."""
        operators = self._operators
        return all(operators[name].progress.watermark > bound for name, bound in self._bounds.items())

    @property
    def agreed(self) -> bool:
        """Whether the roots of both plans have emitted the same watermark, and so the same answers."""
        old = self.query.request.plan
        before = frontier.marks(old, self.query.network.operators)[old.root.node]
        after = frontier.marks(self.plan, self._operators)[self.plan.root.node]
        return before.watermark == after.watermark and before.end == after.end

    # Instead of the old operators

    def finish(self) -> None:
        """Connect all operators according to the new plan, and remove those that it does not have."""
        query, network = self.query, self.query.network
        counters, output = query.counters, network.output
        tasks = {name: query.tasks[self._operators[name].name] for name in self._tasked()}
        sources = {node.name: query.sources[node.name] for node in self.plan.sources}
        tasks[OUTPUT] = query.tasks[OUTPUT]
        for operator in network.operators.values():
            for queue in tuple(operator.all_outputs):
                operator.detach(queue)
        for node in self.plan.operating:
            operator = self._operators[node.name]
            if node.name not in self.kept:
                operator.name = node.name
                operator.counters.clear()
                operator.counters.update(Counter(counters.get(node.name)))
            for queue, reference in zip(operator.inputs, node.inputs, strict=True):
                self._operators[reference.node].attach(queue, reference.output)
        self._operators[self.plan.root.node].attach(output.inputs[0], self.plan.root.output)
        network.operators.clear()
        network.operators.update(self._operators)
        network.operators[OUTPUT] = output
        network.paths = paths_to_output(self.plan)
        network.choose_watermarks()
        query.tasks, query.sources = tasks, sources
        query.request = replace(query.request, plan=self.plan)
        self._apply(self.plan)

    def _tasked(self) -> list[str]:
        return [name for name, operator in self._operators.items() if not isinstance(operator, Source)]

    def abandon(self) -> None:
        """Disconnect the new operators and clear their queues; allowed within a slice, and repeatedly."""
        query, operators = self.query, self._operators
        for node in self._new_nodes():
            operator = operators.get(node.name)  # None if its creation failed
            if operator is None or operator.name not in query.tasks:
                return
            for queue, reference in zip(operator.inputs, node.inputs, strict=True):
                operators[reference.node].detach(queue)
                queue.clear()
            del query.network.operators[operator.name]
            query.tasks.pop(operator.name).state = OperatorState.SUSPEND

    def leave_out(self) -> None:
        """Restore sources and tasks to the old plan, once the new operators are abandoned."""
        self._apply(self.query.request.plan)

    def _apply(self, plan: TypedPlan) -> None:
        columns, query = plan.needed_columns(), self.query
        for name, task in query.sources.items():
            task.work.carry(columns[name])
            task.work.provide(needs_of(plan))
        leaves = {path[0] for path in query.network.paths}
        for name, operator_task in query.tasks.items():
            operator_task.leaf = name in leaves
        query.connect()
