"""Memberships of queries in shared pipelines."""

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
    from mavstream_server.engine.sources.source_task import SourceTask
    from mavstream_server.scheduling.view import OperatorView


class Membership:
    """A query's membership in a shared pipeline, which runs a prefix of the query.

    The query's own operators of the prefix are retained without tasks. Their counters are those of the
    pipeline's operators since the query joined; with a copy of the pipeline's state they can run again.
    """

    def __init__(self, prefix: RunningPrefix, depth: int, pipeline: SharedPipeline) -> None:
        """The pipeline runs the prefix's source and the first `depth` nodes above it."""
        self.prefix = prefix
        self.query = query = prefix.query
        self.names = names = prefix.definition.nodes[: depth + 1]
        self.columns = prefix.definition.columns[depth - 1]
        """The columns that the query's own operator would emit."""
        self.source: SourceTask = query.sources[names[0]]
        self.tasks: dict[str, Task] = {name: query.tasks[name] for name in names[1:]}
        self.own = [query.network.operators[name] for name in names]
        self.join(pipeline)

    def join(self, pipeline: SharedPipeline) -> None:
        """Become a member of a pipeline; counters of an earlier one must have been settled."""
        self.pipeline = pipeline
        self.theirs = list(pipeline.network.operators.values())[: len(self.names)]
        for own, their in zip(self.own, self.theirs, strict=True):
            if isinstance(own, WindowedOperator) and isinstance(their, WindowedOperator):
                their.work_for(own)
        self._joined = [
            (
                Counter(own.counters),
                _counted_for(own, their),
                own.rows_out - their.rows_out,
                own.bytes_out - their.bytes_out,
            )
            for own, their in zip(self.own, self.theirs, strict=True)
        ]

    @property
    def last(self) -> Operator:
        """The query's own operator that emits the shared rows to the rest of the query."""
        return self.own[-1]

    @property
    def readers(self) -> Sequence[OperatorView]:
        """The query's operators that read the shared rows."""
        return self.tasks[self.names[-1]].downstream

    def own_name(self, their: str) -> str:
        """Return the query's name of a node, given the pipeline's name."""
        found = {operator.name: name for operator, name in zip(self.theirs, self.names, strict=True)}
        return found.get(their, their)

    def task(self, name: str) -> Task | None:
        """Return the pipeline's task for a node of the query; None if the pipeline has ended."""
        return self.pipeline.tasks.get(self.theirs[self.names.index(name)].name)

    @property
    def running_source(self) -> SourceTask:
        """The source that reads for the query: the pipeline's, or its own if that has ended."""
        return next(iter(self.pipeline.sources.values()), self.source)

    def branch(self) -> Branch:
        """Return the branch of the pipeline's fan-out that leads to the query."""
        columns = None if self.columns == self.pipeline.columns else self.columns
        return Branch(self.last, columns, self.query.network.account, self.source.room)

    def narrowed(self, batch: Batch) -> Batch:
        """Return a batch of the pipeline with the query's columns only."""
        same = self.columns == self.pipeline.columns or not batch.size
        return batch if same else batch.narrowed(self.columns)

    @property
    def has_room(self) -> bool:
        """Whether the query's queues have room for more rows."""
        return self.query.network.account.has_room(self.source.room)

    def settle(self) -> None:
        """Update the counters, row counts and cursor of the query's inactive operators from the pipeline."""
        for own, their, joined in zip(self.own, self.theirs, self._joined, strict=True):
            mine, before, rows, nbytes = joined
            now = _counted_for(own, their)
            counted = {
                reason: count
                for reason in {*mine, *now}
                if (count := mine[reason] + now[reason] - before[reason])
            }
            # In place: windows hold a reference to the same object.
            own.counters.clear()
            own.counters.update(counted)
            if own is not self.last:
                own.rows_out = rows + their.rows_out
                own.bytes_out = nbytes + their.bytes_out
        source, read = self.own[0], self.theirs[0]
        assert isinstance(source, Source)
        assert isinstance(read, Source)
        source.cursor.restore(read.cursor.state)
        source.ended = read.ended


def _counted_for(own: Operator, their: Operator) -> Counter[str]:
    """Return the counters of a pipeline's operator as the query's own operator would have counted."""
    counted = Counter(their.counters)
    if isinstance(own, WindowedOperator) and isinstance(their, WindowedOperator):
        missed = their.missed_by(own)
        counted[LATE] -= missed
        counted[MISSED] += missed
    return counted
