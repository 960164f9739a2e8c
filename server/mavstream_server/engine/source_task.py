"""Source tasks: sources as the scheduler sees them, and how long they linger for more rows."""

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
    """A source of a query. It is ready when its stream has unread rows and the query's queues have room.

    It lingers for a train to fill: not at all while the engine is idle, since nothing is gained then; under
    load small batches make it linger longer, up to a quarter of the query's latency target.
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
        """`room` is the number of rows in the query's queues at which it stops reading."""
        self.number = number
        self.work = work
        self.query = query
        self.train = train
        self.room = room
        self.downstream: Sequence[OperatorView] = ()
        self.state = OperatorState.SUSPEND
        self.held = False
        self.attached = False
        """Whether the intake serves it: not while the query is paused."""
        self.collector = StatisticsCollector()
        self.linger = 0
        """How long it waits for more rows (ns)."""
        self.waiting_since = 0
        """When it began to wait for more rows (ns)."""
        self.lingers = False
        """Whether it waits for more rows."""
        self.idle = True
        """Whether the engine was idle when it became ready."""
        self.cap = _LONGEST_LINGER
        """The longest linger (ns)."""
        self.aim_at(query.request.latency_target)

    def aim_at(self, target: int | None) -> None:
        """Linger at most a quarter of a latency target (us); None for no target."""
        self.cap = _LONGEST_LINGER if target is None else min(_LONGEST_LINGER, target * 1000 // 4)
        self.linger = min(self.linger, self.cap)

    def become(self, state: OperatorState) -> None:
        """Change the state; raises IllegalMove."""
        self.state = move("source", self.work.name, self.state, state, OPERATOR_MOVES)

    @property
    def has_room(self) -> bool:
        """Whether the query's queues have room for more rows."""
        return self.query.network.account.rows < self.room

    @property
    def ready(self) -> bool:
        """Whether it can emit a batch now and need not wait for more rows."""
        if not self.attached or self.work.ended or not self.work.behind:
            return False
        notified = self.state is OperatorState.READY
        if not notified and self.linger and self.work.waiting_rows < self.train:
            return False
        if self.query.network.account.rows < self.room:
            return True
        self.wait_for_room()
        return False

    def wait_for_room(self) -> None:
        """Suspend until the query has room; the policy is notified again then."""
        self.query.blocked = True
        if self.state is OperatorState.READY:
            self.state = OperatorState.SUSPEND

    @property
    def queued(self) -> int:
        """Unread rows in the log."""
        return self.work.waiting_rows

    @property
    def queued_bytes(self) -> int:
        """Unread bytes in the log."""
        return self.work.cursor.backlog.nbytes

    @property
    def oldest(self) -> int | None:
        """Arrival time of the next row to be read; None if there is none."""
        return self.work.next_arrival

    @property
    def statistics(self) -> Statistics:
        """The statistics as last published."""
        return self.collector.published

    def run(self, most: int | None) -> int:
        """Emit at most a train, or `most` rows; returns the number of rows."""
        rows = self.work.read(self.train if most is None else min(most, self.train))
        self.adapt(rows)
        return rows

    def due(self, now: int) -> bool:
        """Whether to emit now rather than to wait for more rows."""
        if self.idle or not self.linger or now >= self.waiting_since + self.linger:
            return True
        return self.work.waiting_rows >= self.train

    def adapt(self, rows: int) -> None:
        """Adapt the linger to the number of rows in the batch that was emitted."""
        if self.idle or rows >= self.train // 2:
            self.linger = self.linger // 2 if self.linger > _SHORTEST_LINGER else 0
        elif rows < self.train // 4:
            self.linger = min(self.cap, max(2 * self.linger, _SHORTEST_LINGER))
