"""Shared parts: what a query has in a trunk, and its own operators that stand by meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mavstream_server.engine.task import Task
from mavstream_server.operators.fan_out import Branch
from mavstream_server.operators.operator import Operator
from mavstream_server.operators.source import Source
from mavstream_server.operators.windows.gate import LATE, MISSED
from mavstream_server.operators.windows.windowed import WindowedOperator

if TYPE_CHECKING:
    from mavstream_server.columns.batch import Batch
    from mavstream_server.engine.sharing.running_prefix import RunningPrefix
    from mavstream_server.engine.sharing.shared_pipeline import SharedPipeline
    from mavstream_server.engine.source_task import SourceTask
    from mavstream_server.scheduling.view import OperatorView


class Membership:
    """A prefix of a query while a trunk runs it.

    The query's own operators of the prefix stay as they were built, without tasks. Their figures are those
    of the trunk's, counted from when the query joined; with the trunk's state they can go on by themselves.
    """

    def __init__(self, strand: RunningPrefix, depth: int, trunk: SharedPipeline) -> None:
        """The trunk runs the strand's source and so many nodes above it."""
        self.strand = strand
        self.query = query = strand.query
        self.names = names = strand.chain.nodes[: depth + 1]
        self.columns = strand.chain.columns[depth - 1]
        """What the query's own operator would hand on."""
        self.source: SourceTask = query.sources[names[0]]
        self.tasks: dict[str, Task] = {name: query.tasks[name] for name in names[1:]}
        self.own = [query.network.operators[name] for name in names]
        self.join(trunk)

    def join(self, trunk: SharedPipeline) -> None:
        """Let a trunk work for the query from now on; figures of another one must be settled."""
        self.trunk = trunk
        self.theirs = list(trunk.network.operators.values())[: len(self.names)]
        for own, their in zip(self.own, self.theirs, strict=True):
            if isinstance(own, WindowedOperator) and isinstance(their, WindowedOperator):
                their.work_for(own)
        self._joined = [
            (Counter(own.counters), _counted_for(own, their), own.rows_out - their.rows_out)
            for own, their in zip(self.own, self.theirs, strict=True)
        ]

    @property
    def last(self) -> Operator:
        """The operator that the shared rows go out through."""
        return self.own[-1]

    @property
    def readers(self) -> Sequence[OperatorView]:
        """The query's operators that read the shared rows."""
        return self.tasks[self.names[-1]].downstream

    def own_name(self, their: str) -> str:
        """Return what the query calls a node of the trunk."""
        found = {operator.name: name for operator, name in zip(self.theirs, self.names, strict=True)}
        return found.get(their, their)

    def task(self, name: str) -> Task | None:
        """Return the trunk's task of a node of the query; None if the trunk has ended."""
        return self.trunk.tasks.get(self.theirs[self.names.index(name)].name)

    @property
    def running_source(self) -> SourceTask:
        """The source that reads for the query: the trunk's, or its own if the trunk has ended."""
        return next(iter(self.trunk.sources.values()), self.source)

    def branch(self) -> Branch:
        """Return how the trunk reaches the query."""
        columns = None if self.columns == self.trunk.columns else self.columns
        return Branch(self.last, columns, self.query.network.account, self.source.room)

    def narrowed(self, batch: Batch) -> Batch:
        """Return what the query gets of a batch of the trunk's."""
        same = self.columns == self.trunk.columns or not batch.size
        return batch if same else batch.narrowed(self.columns)

    @property
    def has_room(self) -> bool:
        """Whether the query's queues have room for more."""
        return self.query.network.account.rows < self.source.room

    def settle(self) -> None:
        """Let the operators that stand by tell what the trunk's have done since the query joined."""
        for own, their, joined in zip(self.own, self.theirs, self._joined, strict=True):
            mine, before, rows = joined
            now = _counted_for(own, their)
            counted = {
                reason: count
                for reason in {*mine, *now}
                if (count := mine[reason] + now[reason] - before[reason])
            }
            # In place: windows count into the same object.
            own.counters.clear()
            own.counters.update(counted)
            if own is not self.last:
                own.rows_out = rows + their.rows_out
        source, read = self.own[0], self.theirs[0]
        assert isinstance(source, Source)
        assert isinstance(read, Source)
        source.cursor.restore(read.cursor.state)
        source.ended = read.ended


def _counted_for(own: Operator, their: Operator) -> Counter[str]:
    """Return what a trunk's operator has counted, as the query's own operator would have."""
    counted = Counter(their.counters)
    if isinstance(own, WindowedOperator) and isinstance(their, WindowedOperator):
        missed = their.missed_by(own)
        counted[LATE] -= missed
        counted[MISSED] += missed
    return counted
