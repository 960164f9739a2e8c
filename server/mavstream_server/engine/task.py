"""Tasks: operators of running queries as the scheduler sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mavstream_server.engine.states import OPERATOR_MOVES, OperatorState, move
from mavstream_server.operators.operator import Operator, SteppedOperator
from mavstream_server.scheduling.statistics import Statistics, StatisticsCollector
from mavstream_server.scheduling.view import OperatorKind, OperatorView

if TYPE_CHECKING:
    from mavstream_server.engine.query import RunningQuery


STEP_NS = 2_000_000
"""Time (ns) after which work that may take long is interrupted, so that the policy can decide again."""
_FEW = 128  # rows that are processed at once as long as it is unknown what they cost
_LEAST = 16  # rows that are processed at once whatever they cost


class Task:
    """An operator of a query with its state and statistics."""

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
        "step_rows",
        "stepped",
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
        self.stepped = isinstance(work, SteppedOperator)
        """Whether a batch may take long, so that it is processed in steps."""
        self.step_rows = _FEW
        """The number of rows that are processed in one step."""
        self.leaf = leaf
        self.downstream: Sequence[OperatorView] = ()
        self.fed_by: Sequence[Operator] = ()
        """Operators below it that are no tasks of its query: sources, and those of a shared prefix."""
        self.state = OperatorState.SUSPEND
        self.held = False
        """Whether a slice under way includes it: the policy considers it when the slice has finished."""
        self.collector = StatisticsCollector()
        self._inputs = work.inputs
        self._woken = woken
        self._grew: Callable[[Task], None] | None = None
        for queue in work.inputs:
            queue.filled = self._filled

    def _filled(self) -> None:
        if self.work.unfinished is not None and not self.ready:
            return  # it is woken when its readers have taken what it has emitted
        if self.state is OperatorState.SUSPEND:
            self.state = OperatorState.READY
            if not self.held:
                self._woken(self)
        elif self._grew is not None:
            self._notify_growth()

    def _notify_growth(self) -> None:
        if self.state is OperatorState.READY and not self.held and self._grew is not None:
            self._grew(self)

    def tell_growth(self, grew: Callable[[Task], None] | None) -> None:
        """Call `grew` from now on whenever a batch is added to a queue that is not empty; None for never."""
        self._grew = grew
        for queue in self._inputs:
            queue.grown = None if grew is None else self._notify_growth

    def become(self, state: OperatorState) -> None:
        """Change the state; raises IllegalMove."""
        self.state = move("operator", self.work.name, self.state, state, OPERATOR_MOVES)

    @property
    def ready(self) -> bool:
        """Whether any input queue has batches, or work on the last batch can go on."""
        if self.work.unfinished is not None:
            return not any(len(queue) for queue in self.work.all_outputs)
        inputs = self._inputs
        return len(inputs[0]) > 0 if len(inputs) == 1 else any(len(queue) for queue in inputs)

    @property
    def interrupted(self) -> bool:
        """Whether work on the last batch is unfinished."""
        return self.work.unfinished is not None

    @property
    def queued(self) -> int:
        """Rows in the input queues."""
        return sum(queue.rows for queue in self._inputs)

    @property
    def queued_bytes(self) -> int:
        """Bytes in the input queues."""
        return sum(queue.nbytes for queue in self._inputs)

    @property
    def oldest(self) -> int | None:
        """Arrival time of the oldest queued row; None if there is none."""
        return min((oldest for q in self._inputs if (oldest := q.oldest) is not None), default=None)

    @property
    def progress(self) -> int:
        """Estimated nanoseconds spent on the batches at the heads of the queues, of which rows were taken."""
        done = sum(queue.cut for queue in self._inputs)
        return int(done * self.statistics.cost_per_tuple)

    @property
    def statistics(self) -> Statistics:
        """The statistics as last published."""
        return self.collector.published

    def measure_input(self) -> None:
        """Publish the size of the rows that operators outside of the query's tasks emit to it, if any do."""
        if self.fed_by:
            rows = sum(feeder.rows_out for feeder in self.fed_by)
            self.collector.measure_input(rows, sum(feeder.bytes_out for feeder in self.fed_by))

    def run(self, most: int | None) -> int:
        """Process the next batch, or at most its first `most` rows; returns the number of rows.

        Goes on with unfinished work first, which takes no rows.
        """
        if self.work.unfinished is not None:
            self.work.proceed()
            return 0
        port = self._fullest_input()
        if not len(self._inputs[port]):
            return 0  # the work for which it became ready was finished for a snapshot
        if self.stepped:
            most = self.step_rows if most is None else min(most, self.step_rows)
        batch = self._inputs[port].pop(most)
        self.work.begin(port, batch)
        return batch.size

    def measured(self) -> None:
        """Follow new statistics: how many rows can be processed in the time of a step."""
        self.step_rows = max(int(STEP_NS / max(self.collector.published.cost_per_tuple, 1.0)), _LEAST)

    def continue_later(self) -> None:
        """Become ready as soon as the readers have taken what unfinished work has emitted so far."""
        waiting = [queue for queue in self.work.all_outputs if len(queue)]
        if not waiting:
            self._filled()
        for queue in waiting:
            queue.drained = self._drained

    def _drained(self) -> None:
        if self.ready:
            self._filled()

    def _fullest_input(self) -> int:
        """Return the port to read next: the one with most rows, so that none falls far behind."""
        inputs = self._inputs
        if len(inputs) == 1:
            return 0
        return max(range(len(inputs)), key=lambda port: (len(inputs[port]) > 0, inputs[port].rows))
