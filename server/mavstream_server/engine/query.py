"""Running queries: the operators, state and memory of one admitted query."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from mavstream_server.columns.batch import Batch
from mavstream_server.core.metrics import SheddingInterval
from mavstream_server.engine.crash_record import note_of
from mavstream_server.engine.query_request import QueryRequest
from mavstream_server.engine.sources.source_task import SourceTask
from mavstream_server.engine.states import QUERY_MOVES, OperatorState, QueryState, move
from mavstream_server.engine.task import Task
from mavstream_server.operators.select import Select
from mavstream_server.operators.windows.windowed import WindowedOperator
from mavstream_server.planning.instantiator import Network
from mavstream_server.scheduling.mechanisms.units import QueryUnits
from mavstream_server.scheduling.view import OperatorView

if TYPE_CHECKING:
    from mavstream_server.engine.sharing.membership import Membership


class Memory(NamedTuple):
    """The bytes that a query holds."""

    queued: int
    """In batches between its operators."""
    state: int
    """In its operators: windows, groups, rows that wait for join partners."""
    backlog: int
    """Unread, in the logs of its streams: on disk, cached by the operating system."""

    @property
    def resident(self) -> int:
        """The bytes in memory, not on disk: 0 when the query has ended."""
        return self.queued + self.state

    def plus(self, other: Memory) -> Memory:
        """Return the sum of both."""
        return Memory(self.queued + other.queued, self.state + other.state, self.backlog + other.backlog)


NEW = "+"
"""Prefix of the names of a migration's new operators while they run in parallel; no node name has it."""


class MigrationStage(StrEnum):
    """The stages of a migration."""

    DRAINING = "draining"
    """Sources are held until the query is quiescent."""
    WARMING = "warming"
    """New operators run in parallel with the old ones until their state is complete."""
    LEAVING = "leaving"
    """It was given up; the new operators are removed at the next quiescent point."""


class PlanMigrations:
    """The migrations of a query since it started."""

    __slots__ = ("count", "note", "seam", "stage", "version")

    def __init__(self) -> None:
        self.version = 0
        """The version of the plan that runs: 0 for the one it started with, else that of the migration."""
        self.count = 0
        """The number of completed migrations."""
        self.stage: MigrationStage | None = None
        """The stage of the migration in progress, if any."""
        self.note: str | None = None
        """Why the last migration was given up."""
        self.seam: tuple[int, Mapping[str, tuple[int, int]]] | None = None
        """Where its plan was replaced since it started: the offset, and by stream what was not retained."""

    def done(self, version: int) -> None:
        """Record a completed migration to a plan of this version."""
        self.version, self.stage, self.note = version, None, None
        self.count += 1


HandsOver = Callable[[OperatorView, OperatorView], bool]
"""Whether the second operator may process at once what the first one emits; a policy answers."""
Receiver = Callable[[Task, int], Callable[[Batch], None]]
"""Returns what processes batches for an input of a task at once."""


class RunningQuery:
    """A query with its operators; scheduling policies see it as a QueryView.

    Operators of a prefix that it shares are inactive: they are in the network, but have no task.
    """

    source_task: ClassVar[type[SourceTask]] = SourceTask

    def __init__(self, request: QueryRequest, network: Network) -> None:
        self.request = request
        self.id = request.id
        self.class_name = request.class_name
        self.weight = 1
        self.latency_target: int | None = None
        """The effective latency target (ns): its own, else that of its class."""
        self.network = network
        self.output = network.output
        self.state = QueryState.RUNNING
        self.reason: str | None = None
        """Why it failed."""
        self.tasks: dict[str, Task] = {}
        self.sources: dict[str, SourceTask] = {}
        self.operators: Sequence[OperatorView] = ()
        self.paths: Sequence[Sequence[OperatorView]] = ()
        self._serves_sources = False
        self.units: QueryUnits
        self.outdated = False
        """Whether its units must be recomputed with the next statistics: rows were passed over, or it is a
        shared pipeline whose members have changed."""
        self._counters: dict[str, dict[str, int]] = {}
        self._rows_read = 0
        self._shedding_intervals: tuple[SheddingInterval, ...] = ()
        self.migrations = PlanMigrations()
        self.blocked = False
        """Whether its sources wait until its queues have drained."""
        self.shared: list[Membership] = []
        """Its memberships in shared pipelines."""
        self.positions = array("q", [0, 0] * len(list(request.plan.sources)))
        """The positions of the rows that its sources read, or have read last: first, behind the last."""
        self._note: bytes | None = None

    @property
    def known_as(self) -> str | None:
        """The id of a user's query that this one runs for; None if there is none."""
        return self.id

    @property
    def note(self) -> bytes:
        """Its note in the crash record: for whom it runs, and the streams that it reads."""
        if self._note is None:
            self._note = note_of(self._runs_for, self._noted_streams())
        return self._note

    def follow_sharing(self) -> None:
        """Make another note and find the sources that read for it, since what it shares has changed."""
        self._note = None
        shared = {member.names[0]: member.running_source.work for member in self.shared}
        self.output.sources = [shared.get(source.name, source) for source in self.network.sources]

    @property
    def noted_positions(self) -> array[int]:
        """The positions in the crash record, in the order of the streams of the note."""
        if not self.shared:
            return self.positions
        if not self.sources and len(self.shared) == 1:
            return self.shared[0].pipeline.positions
        # A source whose prefix is shared has no task: the pipeline's source reads for it.
        own = [self.positions[task.slot : task.slot + 2] for task in self.sources.values()]
        return sum([*own, *(member.pipeline.positions for member in self.shared)], array("q"))

    def _noted_streams(self) -> list[str]:
        streams = {node.name: node.stream for node in self.request.plan.sources}
        if not self.shared:
            return list(streams.values())
        shared = [node.stream for member in self.shared for node in member.pipeline.request.plan.sources]
        return [*(streams[name] for name in self.sources), *shared]

    @property
    def _runs_for(self) -> Iterable[str]:
        """The ids of the users' queries that it runs for."""
        return (self.id,)

    def connect(self) -> None:
        """Set the readers of each task's output."""
        readers = {id(queue): task for task in self.tasks.values() for queue in task.work.inputs}
        for task in self._all_tasks():
            task.downstream = tuple(readers[id(queue)] for queue in task.work.all_outputs)

    def _visible(self) -> list[Task | SourceTask]:
        """Return the tasks that the policy runs: those of sources only where it serves them."""
        return [*(self.sources.values() if self._serves_sources else ()), *self.tasks.values()]

    def _all_tasks(self) -> list[Task | SourceTask]:
        return [*self.sources.values(), *self.tasks.values()]

    @property
    def has_room(self) -> bool:
        """Whether its queues have room for more rows of its own sources and of shared pipelines."""
        return all(task.has_room for task in self.sources.values()) and all(
            member.has_room for member in self.shared
        )

    def arrange(self, with_sources: bool) -> None:
        """Compute the operators, paths and units that policies see, with the sources or without."""
        self._serves_sources = with_sources
        tasks, sources = self.tasks, self.sources if with_sources else {}
        self.operators = self._visible()
        pairs = zip(self.network.sources, self.network.paths, strict=True)
        below = [
            (sources.get(source.name), [tasks[name] for name in path if name in tasks])
            for source, path in pairs
        ]
        self.paths = [path if source is None else [source, *path] for source, path in below]
        outside = [operator for name, operator in self.network.operators.items() if name not in tasks]
        writers = {id(queue): operator for operator in outside for queue in operator.all_outputs}
        for task in tasks.values():
            task.leaf = any(task is path[0] for _, path in below)
            task.fed_by = [writers[id(queue)] for queue in task.work.inputs if id(queue) in writers]
        for source in self.sources.values():
            source.windows = self._windows_above(source)
            source.settle()
            source.select = self._select_above(source)
        self.units, self.outdated = QueryUnits(self), False

    def _windows_above(self, source: SourceTask) -> list[WindowedOperator]:
        """Return the windowed operators between a source and the output, if the way there has no branches."""
        windows: list[WindowedOperator] = []
        task: OperatorView = source
        while len(task.downstream) == 1:
            (task,) = task.downstream
            if not isinstance(task, Task) or task.query is not self or len(task.work.inputs) != 1:
                break
            if task.work is self.output:
                return windows
            if isinstance(task.work, WindowedOperator):
                windows.append(task.work)
        return []

    def _select_above(self, source: SourceTask) -> Task | None:
        """Return the select that alone reads a source, if there is one."""
        (reader,) = source.downstream if len(source.downstream) == 1 else (None,)
        if isinstance(reader, Task) and reader.query is self and isinstance(reader.work, Select):
            return reader
        return None

    def fuse(self, hands_over: HandsOver, receiver: Receiver) -> None:
        """Leave out the queues between operators that the policy runs in one turn.

        A queue that is not empty is left out once its reader has drained it, so order is kept. New operators
        of a migration are never fused: if one fails, the others must not notice.
        """
        writers = {id(queue): task for task in self._visible() for queue in task.work.all_outputs}
        for operator in self.network.operators.values():  # those of a shared prefix are inactive
            for queue in operator.inputs:
                queue.receive = None
        for name, task in self.tasks.items():
            for port, queue in enumerate(task.work.inputs):
                writer = None if name.startswith(NEW) else writers.get(id(queue))
                if writer is not None and hands_over(writer, task):
                    queue.receive = receiver(task, port)

    def retarget(self, latencies: Mapping[str, int]) -> None:
        """Set the effective latency target, given those of classes (ns); sources linger accordingly."""
        own = self.request.latency_target
        self.latency_target = target = latencies.get(self.class_name) if own is None else own * 1000
        for task in (*self.sources.values(), *(member.source for member in self.shared)):
            task.aim_at(None if target is None else target // 1000)

    def settle(self) -> None:
        """Update the counters of operators that shared pipelines run for it, and of screened selects."""
        for task in self.sources.values():
            task.settle()
        for member in self.shared:
            member.settle()

    def become(self, state: QueryState) -> None:
        """Change the state; raises IllegalMove."""
        self.state = move("query", self.id, self.state, state, QUERY_MOVES)

    @property
    def active(self) -> bool:
        """Whether its operators may run."""
        return self.state in (QueryState.RUNNING, QueryState.PAUSED)

    @property
    def own_memory(self) -> Memory:
        """The memory of its own operators, queues and cursors."""
        backlog = 0
        if self.state is QueryState.RUNNING:
            sources = [task.work for task in self.sources.values()]
            backlog = sum(source.cursor.backlog.nbytes for source in sources if not source.ended)
        state = sum(task.work.state_bytes for task in self.tasks.values())
        return Memory(self.network.account.nbytes, state, backlog)

    @property
    def resident(self) -> int:
        """The bytes of its memory that are not on disk; quicker than `memory`, and checked often."""
        held = self.network.account.nbytes + sum([task.work.state_bytes for task in self.tasks.values()])
        return held + sum([member.pipeline.resident for member in self.shared])

    @property
    def has_unfinished_work(self) -> bool:
        """Whether one of its operators has begun work on a batch that it has not finished."""
        return any(operator.unfinished is not None for operator in self.network.operators.values())

    @property
    def memory(self) -> Memory:
        """Its memory including that of its shared pipelines: as much as it would hold without sharing.

        Each member of a shared pipeline counts all of it. Totals of several queries must not: see
        `class_metrics`.
        """
        memory = self.own_memory
        for member in self.shared:
            memory = memory.plus(member.pipeline.own_memory)
        return memory

    @property
    def rows_in(self) -> int:
        """Rows read from its streams, counted per source; retained when the query has ended."""
        self.settle()
        return self._rows_read + sum(source.rows_out for source in self.network.sources)

    @property
    def counters(self) -> dict[str, dict[str, int]]:
        """Rows that were left out, by operator and reason; retained when the query has ended."""
        self.settle()
        for name, operator in self.network.operators.items():
            if operator.counters and not name.startswith(NEW):
                self._counters[name] = dict(operator.counters)
        return self._counters

    @property
    def shedding_intervals(self) -> tuple[SheddingInterval, ...]:
        """The intervals during which load was shed; retained when the query has ended."""
        return self._shedding_intervals + tuple(
            s for source in self.network.sources for s in source.shedding_intervals
        )

    def leave(self, sources: Iterable[SourceTask]) -> None:
        """Count what sources have read and left out that it does not have any more from now on."""
        for task in sources:
            task.settle()
            self._rows_read += task.work.rows_out
            self._shedding_intervals += task.work.shedding_intervals

    def release(self) -> None:
        """Stop all operators, and drop their state and queues."""
        for task in self._all_tasks():
            task.become(OperatorState.STOP)
        for operator in self.network.operators.values():
            operator.abandon()
        self._counters = self.counters
        self._rows_read = self.rows_in
        self._shedding_intervals = self.shedding_intervals
        self.network.operators.clear()
        self.tasks, self.sources = {}, {}
        self.operators = self.paths = ()
