"""Tasks: operators as the scheduler sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mavstream_server.engine.states import OPERATOR_MOVES, OperatorState, move
from mavstream_server.operators.operator import Operator
from mavstream_server.scheduling.statistics import Statistics, StatisticsCollector
from mavstream_server.scheduling.view import OperatorKind, OperatorView

if TYPE_CHECKING:
    from mavstream_server.engine.query import RunningQuery


class Task:
    """An operator with its place in a query, its state and its statistics."""

    __slots__ = (
        "_grew",
        "_inputs",
        "_woken",
        "collector",
        "downstream",
        "fed_by",
        "held",
        "kind",
        "leaf",
        "number",
        "operator",
        "query",
        "state",
        "work",
    )

    def __init__(
        self,
        number: int,
        work: Operator,
        query: RunningQuery,
        kind: OperatorKind,
        leaf: bool,
        woken: Callable[[Task], None],
    ) -> None:
        self.number = number
        self.work = work
        self.query = query
        self.kind = kind
        self.operator = work.kind
        self.leaf = leaf
        self.downstream: Sequence[OperatorView] = ()
        self.fed_by: Sequence[Operator] = ()
        """Operators below it that are not tasks of its query: sources, and shared ones that stand by."""
        self.state = OperatorState.SUSPEND
        self.held = False
        """Part of a slice that is being run: the policy looks at it when that has finished."""
        self.collector = StatisticsCollector()
        self._inputs = work.inputs
        self._woken = woken
        self._grew: Callable[[Task], None] | None = None
        for queue in work.inputs:
            queue.filled = self._filled

    def _filled(self) -> None:
        if self.state is OperatorState.SUSPEND:
            self.state = OperatorState.READY
            if not self.held:
                self._woken(self)
        elif self._grew is not None:
            self._more()

    def _more(self) -> None:
        if self.state is OperatorState.READY and not self.held and self._grew is not None:
            self._grew(self)

    def tell_growth(self, grew: Callable[[Task], None] | None) -> None:
        """Call `grew` from now on whenever more comes to what waits already; None for never."""
        self._grew = grew
        for queue in self._inputs:
            queue.grown = None if grew is None else self._more

    def become(self, state: OperatorState) -> None:
        """Change the state, as the table of moves allows."""
        self.state = move("operator", self.work.name, self.state, state, OPERATOR_MOVES)

    @property
    def ready(self) -> bool:
        """Whether anything waits at the inputs."""
        inputs = self._inputs
        return len(inputs[0]) > 0 if len(inputs) == 1 else any(len(queue) for queue in inputs)

    @property
    def queued(self) -> int:
        """Rows that wait at the inputs."""
        return sum(queue.rows for queue in self._inputs)

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait at the inputs."""
        return sum(queue.nbytes for queue in self._inputs)

    @property
    def oldest(self) -> int | None:
        """Arrival time of the oldest row that waits, or None."""
        return min((oldest for q in self._inputs if (oldest := q.oldest) is not None), default=None)

    @property
    def progress(self) -> int:
        """Nanoseconds spent on the rows that were cut off the batches at the head."""
        done = sum(queue.cut for queue in self._inputs)
        return int(done * self.statistics.cost_per_tuple)

    @property
    def statistics(self) -> Statistics:
        """The figures as last published."""
        return self.collector.published

    def measure_input(self) -> None:
        """Publish the size of the rows that come from outside the query's tasks, if any do."""
        if self.fed_by:
            rows = sum(feeder.rows_out for feeder in self.fed_by)
            self.collector.measure_input(rows, sum(feeder.bytes_out for feeder in self.fed_by))

    def run(self, most: int | None) -> int:
        """Work on the next batch, or on its first rows; returns how many."""
        port = self._fullest_input()
        batch = self._inputs[port].pop(most)
        self.work.process(port, batch)
        return batch.size

    def _fullest_input(self) -> int:
        """Return the input to read next: the one with most rows, so that none falls far behind."""
        inputs = self._inputs
        if len(inputs) == 1:
            return 0
        return max(range(len(inputs)), key=lambda port: (len(inputs[port]) > 0, inputs[port].rows))
