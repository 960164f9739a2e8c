"""Replaces the operators of a running query by those of another plan; its sources and output stay.

Operators that are the same in both plans go on, too. The others are made anew beside the old ones and read
what these read, but nobody reads what they give. When they know all that they must, everything is
connected as the new plan says, and the old operators are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from mavstream_protocol.typed_plan import TypedNode, TypedPlan
from mavstream_server.columns.batch import BEGIN_OF_TIME, Mark
from mavstream_server.engine.declared import declared
from mavstream_server.engine.migration import frontier as told
from mavstream_server.engine.migration.reuse import kept_nodes
from mavstream_server.engine.query import NEW, RunningQuery
from mavstream_server.engine.states import OperatorState
from mavstream_server.engine.task import Task
from mavstream_server.operators.operator import Operator
from mavstream_server.operators.source import Source
from mavstream_server.planning.instantiator import OUTPUT, OperatorMaker, connect, paths_to_output
from mavstream_server.scheduling.statistics import StatisticsCollector

TaskMaker = Callable[[Operator], Task]


class OperatorExchange:
    """The way of one query from its plan to another. All but `abandon` is done at still points."""

    def __init__(self, query: RunningQuery, plan: TypedPlan) -> None:
        self.query = query
        self.plan = plan
        self.kept = kept_nodes(query.request.plan, plan, query.request.options.one_time)
        self._operators: dict[str, Operator] = {}
        """The new plan's, by node: old ones that are kept, sources among them, and new ones."""
        self._bounds: dict[str, int] = {}
        """By node: up to when answers of a new operator lack rows; none if there were no rows."""
        self.reach = 0
        """How far that is behind the latest row (us)."""

    @property
    def begun(self) -> bool:
        """Whether there are new operators."""
        return bool(self._operators)

    @property
    def anew(self) -> list[TypedNode]:
        """The nodes whose operators must get to know rows that came before them."""
        return [node for node in self._new_nodes() if node.stateful]

    def _new_nodes(self) -> Iterator[TypedNode]:
        return (node for node in self.plan.operating if node.name not in self.kept)

    # Beside the old operators

    def begin(self, make: OperatorMaker, task: TaskMaker) -> None:
        """Make the new operators and let them read, from here on, what the old ones read.

        They are told what is known of time, as if they had always been there.
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
                told.begin_at(node, operator, marks)
                connect(network.account, operator, node.inputs, self._operators)
                network.operators[operator.name] = operator
                made = query.tasks[operator.name] = task(operator)
                made.collector = StatisticsCollector(declared(self.plan, name))
                made.leaf = name in leaves
            self._operators[name] = operator
            marks[name] = told.mark_above(node, operator, marks)
        sources = self._sources()
        touched = told.touched(self.plan, sources)
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
        """How much further time must come until all is known that matters (us); 0 or less when it has."""
        marks = told.marks(self.plan, self._operators)
        return max((bound + 1 - marks[name].watermark for name, bound in self._bounds.items()), default=0)

    @property
    def hopeful(self) -> bool:
        """Whether it is worth while to look at `ahead`: quick to tell, and never false when that is 0."""
        operators = self._operators
        return all(operators[name].progress.watermark > bound for name, bound in self._bounds.items())

    @property
    def agreed(self) -> bool:
        """Whether the new root has told the same of time as the old one: then it has answered the same."""
        old = self.query.request.plan
        before = told.marks(old, self.query.network.operators)[old.root.node]
        after = told.marks(self.plan, self._operators)[self.plan.root.node]
        return before.watermark == after.watermark and before.end == after.end

    # In the place of the old operators

    def finish(self) -> None:
        """Connect everything as the new plan says, and leave out what it does not have."""
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
        query.tasks, query.sources = tasks, sources
        query.request = replace(query.request, plan=self.plan)
        self._settle(self.plan)

    def _tasked(self) -> list[str]:
        return [name for name, operator in self._operators.items() if not isinstance(operator, Source)]

    def abandon(self) -> None:
        """Let the new operators read and hold nothing any more; may be called within a slice, and again."""
        query, operators = self.query, self._operators
        for node in self._new_nodes():
            operator = operators.get(node.name)  # None if it could not be made
            if operator is None or operator.name not in query.tasks:
                return
            for queue, reference in zip(operator.inputs, node.inputs, strict=True):
                operators[reference.node].detach(queue)
                queue.clear()
            del query.network.operators[operator.name]
            query.tasks.pop(operator.name).state = OperatorState.SUSPEND

    def leave_out(self) -> None:
        """Let everything be as it was, once the new operators are abandoned."""
        self._settle(self.query.request.plan)

    def _settle(self, plan: TypedPlan) -> None:
        columns, query = plan.needed_columns(), self.query
        for name, task in query.sources.items():
            task.work.carry(columns[name])
        leaves = {path[0] for path in query.network.paths}
        for name, reading in query.tasks.items():
            reading.leaf = name in leaves
        query.connect()
