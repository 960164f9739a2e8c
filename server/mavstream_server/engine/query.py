"""Running queries: operators, state and memory of one admitted query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from mavstream_protocol.typed_plan import TypedPlan
from mavstream_server.core.metrics import SheddingInterval
from mavstream_server.engine.source_task import SourceTask
from mavstream_server.engine.states import QUERY_MOVES, OperatorState, QueryState, move
from mavstream_server.engine.task import Task
from mavstream_server.planning.instantiator import Network, RunOptions
from mavstream_server.scheduling.mechanisms.units import QueryUnits
from mavstream_server.scheduling.view import OperatorView

if TYPE_CHECKING:
    from mavstream_server.engine.sharing.membership import Membership


class Memory(NamedTuple):
    """Bytes that a query holds."""

    queued: int
    """Batches between its operators."""
    state: int
    """Kept by its operators: windows, groups, rows that wait for partners."""
    backlog: int
    """Not read yet, in the logs of its streams: on disk, cached by the system."""

    @property
    def resident(self) -> int:
        """What is in memory, not on disk: 0 when the query has ended."""
        return self.queued + self.state

    def plus(self, other: Memory) -> Memory:
        """Return what both hold together."""
        return Memory(self.queued + other.queued, self.state + other.state, self.backlog + other.backlog)


NEW = "+"
"""Begins the names of operators of another plan that run beside those of the query's own; no node has it."""


class MigrationStage(StrEnum):
    """How far a swap of a query's plan has come."""

    DRAINING = "draining"
    """Sources are held until nothing is on its way."""
    WARMING = "warming"
    """New operators run beside the old ones, until they know what these know."""
    LEAVING = "leaving"
    """It was given up; the new operators go at the next still point."""


class PlanMigrations:
    """What became of a query's plan since it started."""

    __slots__ = ("count", "note", "stage", "version")

    def __init__(self) -> None:
        self.version = 0
        """Of the plan that runs: 0 for the one it started with, else as it was given with the swap."""
        self.count = 0
        self.stage: MigrationStage | None = None
        self.note: str | None = None
        """Why the last one was given up."""

    def done(self, version: int) -> None:
        """Another plan runs from now on."""
        self.version, self.stage, self.note = version, None, None
        self.count += 1


_DEFAULTS = RunOptions()


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """What the engine must know to run a query. Parsed and typed elsewhere: engines only enact."""

    id: str
    plan: TypedPlan
    class_name: str = "default"
    options: RunOptions = _DEFAULTS
    earliest: bool = False
    """Start at the first row that the streams still have instead of at the next to come."""
    latency_target: int | None = None
    """Microseconds; sources wait for more rows at most a quarter of it."""
    queue_limit: int | None = None
    """Rows that may wait in all queues before the sources stop reading; None for the engine's."""
    memory_limit: int | None = None
    """Resident bytes beyond which the query fails."""
    positions: Mapping[str, int] | None = None
    """Where to start instead, by stream; streams that are not named start as `earliest` says."""


class RunningQuery:
    """A query with its operators; scheduling policies see it as a QueryView.

    Operators of a prefix that it shares with others stand by: they are in the network, without a task.
    """

    source_task: ClassVar[type[SourceTask]] = SourceTask

    def __init__(self, request: QueryRequest, network: Network) -> None:
        self.request = request
        self.id = request.id
        self.class_name = request.class_name
        self.weight = 1
        self.network = network
        self.output = network.output
        self.state = QueryState.RUNNING
        self.reason: str | None = None
        """Why it failed."""
        self.tasks: dict[str, Task] = {}
        self.sources: dict[str, SourceTask] = {}
        self.operators: Sequence[OperatorView] = ()
        self.paths: Sequence[Sequence[OperatorView]] = ()
        self.units: QueryUnits
        self.outdated = False
        """Whether units must be worked out anew: of a shared pipeline, whose members have changed."""
        self._counters: dict[str, dict[str, int]] = {}
        self._rows_read = 0
        self._spells: tuple[SheddingInterval, ...] = ()
        self.swaps = PlanMigrations()
        self.blocked = False
        """Its sources wait until its queues have drained."""
        self.shared: list[Membership] = []
        """What others run with it."""

    @property
    def known_as(self) -> str | None:
        """The id of a query that users know of, and that this one is run for; None if there is none."""
        return self.id

    def connect(self) -> None:
        """Tell tasks who reads what they emit."""
        readers = {id(queue): task for task in self.tasks.values() for queue in task.work.inputs}
        for task in self._all_tasks():
            task.downstream = tuple(readers[id(queue)] for queue in task.work.all_outputs)

    def _all_tasks(self) -> list[Task | SourceTask]:
        return [*self.sources.values(), *self.tasks.values()]

    @property
    def has_room(self) -> bool:
        """Whether its sources may read on, and whoever reads for it."""
        return all(task.has_room for task in self.sources.values()) and all(
            part.has_room for part in self.shared
        )

    def arrange(self, with_sources: bool) -> None:
        """Show operators and paths to policies, with the sources or without."""
        tasks, sources = self.tasks, self.sources if with_sources else {}
        self.operators = [*sources.values(), *tasks.values()]
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
        self.units, self.outdated = QueryUnits(self), False

    def settle(self) -> None:
        """Bring the figures of operators that stand by up to date."""
        for part in self.shared:
            part.settle()

    def become(self, state: QueryState) -> None:
        """Change the state, as the table of moves allows."""
        self.state = move("query", self.id, self.state, state, QUERY_MOVES)

    @property
    def active(self) -> bool:
        """Whether its operators may run."""
        return self.state in (QueryState.RUNNING, QueryState.PAUSED)

    @property
    def own_memory(self) -> Memory:
        """What it holds now in operators and at cursors of its own."""
        backlog = 0
        if self.state is QueryState.RUNNING:
            sources = [task.work for task in self.sources.values()]
            backlog = sum(source.cursor.backlog.nbytes for source in sources if not source.ended)
        state = sum(task.work.state_bytes for task in self.tasks.values())
        return Memory(self.network.account.nbytes, state, backlog)

    @property
    def memory(self) -> Memory:
        """What it holds now, with all that shared pipelines hold for it: as much as it would hold alone.

        Members of a shared pipeline each count all of it. Totals of several queries must not: see
        `class_figures`.
        """
        memory = self.own_memory
        for part in self.shared:
            memory = memory.plus(part.trunk.own_memory)
        return memory

    @property
    def rows_in(self) -> int:
        """Rows read from its streams, once per source; stays when the query has ended."""
        self.settle()
        return self._rows_read + sum(source.rows_out for source in self.network.sources)

    @property
    def counters(self) -> dict[str, dict[str, int]]:
        """Rows that were not mixed in, by operator and reason; they stay when the query has ended."""
        self.settle()
        for name, operator in self.network.operators.items():
            if operator.counters and not name.startswith(NEW):
                self._counters[name] = dict(operator.counters)
        return self._counters

    @property
    def spells(self) -> tuple[SheddingInterval, ...]:
        """When rows of its streams were left out to shed load; they stay when the query has ended."""
        return self._spells + tuple(s for source in self.network.sources for s in source.spells)

    def release(self) -> None:
        """Stop all operators and drop what they hold and what waits between them."""
        for task in self._all_tasks():
            task.become(OperatorState.STOP)
        for operator in self.network.operators.values():
            for queue in operator.inputs:
                queue.clear()
        self._counters = self.counters
        self._rows_read = self.rows_in
        self._spells = self.spells
        self.network.operators.clear()
        self.tasks, self.sources = {}, {}
        self.operators = self.paths = ()
