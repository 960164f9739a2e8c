"""Source tasks: sources as the scheduler sees them, where it serves them, and how long they wait for more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mavstream_server.engine.states import OPERATOR_MOVES, OperatorState, move
from mavstream_server.operators.source import Source
from mavstream_server.scheduling.statistics import Statistics, StatisticsCollector
from mavstream_server.scheduling.view import OperatorKind, OperatorView

if TYPE_CHECKING:
    from mavstream_server.engine.query import RunningQuery

_LONGEST_LINGER = 50_000_000  # ns, where no query on the stream has a latency target
_SHORTEST_LINGER = 50_000


class SourceTask:
    """A source of a query. It is ready when its stream has news that the query has room for.

    It waits for a train to fill: not at all while the engine is idle, since then nothing is gained; under
    load small batches make it wait longer, up to a quarter of the query's latency target.
    """

    __slots__ = (
        "attached",
        "cap",
        "collector",
        "downstream",
        "held",
        "idle",
        "linger",
        "lingers",
        "number",
        "query",
        "room",
        "state",
        "train",
        "waiting_since",
        "work",
    )

    kind = OperatorKind.SOURCE
    operator = "source"
    leaf = False
    progress = 0

    def __init__(self, number: int, work: Source, query: RunningQuery, train: int, room: int) -> None:
        """`room` is the number of rows in the query's queues beyond which it does not read on."""
        self.number = number
        self.work = work
        self.query = query
        self.train = train
        self.room = room
        self.downstream: Sequence[OperatorView] = ()
        self.state = OperatorState.SUSPEND
        self.held = False
        self.attached = False
        """Whether its stream is looked at: not while the query is paused."""
        self.collector = StatisticsCollector()
        self.linger = 0
        """Nanoseconds that it waits for more rows,"""
        self.waiting_since = 0
        """since then,"""
        self.lingers = False
        """while it does so."""
        self.idle = True
        """Whether the engine had nothing else to do when it became ready."""
        self.cap = _LONGEST_LINGER
        self.aim_at(query.request.latency_target)

    def aim_at(self, target: int | None) -> None:
        """Wait for more rows at most a quarter of a latency target (us); None for no target."""
        self.cap = _LONGEST_LINGER if target is None else min(_LONGEST_LINGER, target * 1000 // 4)
        self.linger = min(self.linger, self.cap)

    def become(self, state: OperatorState) -> None:
        """Change the state, as the table of moves allows."""
        self.state = move("source", self.work.name, self.state, state, OPERATOR_MOVES)

    @property
    def has_room(self) -> bool:
        """Whether the query's queues have room for more."""
        return self.query.network.account.rows < self.room

    @property
    def ready(self) -> bool:
        """Whether it could hand on something now, and would not rather wait for more."""
        if not self.attached or self.work.ended or not self.work.behind:
            return False
        told = self.state is OperatorState.READY
        if not told and self.linger and self.work.waiting_rows < self.train:
            return False
        if self.query.network.account.rows < self.room:
            return True
        self.wait_for_room()
        return False

    def wait_for_room(self) -> None:
        """Have no part in anything until the query has room; whoever decides is told again then."""
        self.query.blocked = True
        if self.state is OperatorState.READY:
            self.state = OperatorState.SUSPEND

    @property
    def queued(self) -> int:
        """Rows in the log that were not read."""
        return self.work.waiting_rows

    @property
    def queued_bytes(self) -> int:
        """Bytes in the log that were not read."""
        return self.work.cursor.backlog.nbytes

    @property
    def oldest(self) -> int | None:
        """Arrival time of the next row to be read, or None."""
        return self.work.next_arrival

    @property
    def statistics(self) -> Statistics:
        """The figures as last published."""
        return self.collector.published

    def run(self, most: int | None) -> int:
        """Hand on a train at most; returns how many rows."""
        rows = self.work.read(self.train if most is None else min(most, self.train))
        self.adapt(rows)
        return rows

    def due(self, now: int) -> bool:
        """Whether to hand on now rather than to wait for more rows."""
        if self.idle or not self.linger or now >= self.waiting_since + self.linger:
            return True
        return self.work.waiting_rows >= self.train

    def adapt(self, rows: int) -> None:
        """Learn from a hand-over of so many rows."""
        if self.idle or rows >= self.train // 2:
            self.linger = self.linger // 2 if self.linger > _SHORTEST_LINGER else 0
        elif rows < self.train // 4:
            self.linger = min(self.cap, max(2 * self.linger, _SHORTEST_LINGER))
