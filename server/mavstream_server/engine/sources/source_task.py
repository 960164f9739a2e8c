"""Source tasks: sources as the scheduler sees them, and the sizes of their trains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from mavstream_server.columns.batch import Mark
from mavstream_server.engine.sources.linger import Linger
from mavstream_server.engine.states import OPERATOR_MOVES, OperatorState, move
from mavstream_server.engine.task import Task
from mavstream_server.log.cursor import CursorState
from mavstream_server.operators.source import Source
from mavstream_server.operators.windows.windowed import WindowedOperator
from mavstream_server.scheduling.statistics import Statistics, StatisticsCollector
from mavstream_server.scheduling.view import OperatorKind, OperatorView

if TYPE_CHECKING:
    from mavstream_server.engine.query import RunningQuery
    from mavstream_server.scheduling.mechanisms.units import QueryUnits

_SKIP_NS = 1_000  # what it costs to pass over rows
_TRAIN_NS = 1_500_000  # ns that processing a train takes at most, by measured costs


class TrainSize(NamedTuple):
    """The number of rows that a source emits at once."""

    full: int = 4096
    """Rows from which on a train counts as full: the cost per row falls steeply up to here."""
    longest: int = 65_536
    """Rows of the longest train, where that many wait and can be processed in 1.5 ms: others must not wait
    longer for a turn, however many rows there are."""


class SourceTask:
    """A source of a query. It is ready when its stream has unread rows and the query's queues have room.

    It may linger until a train is full (see `Linger`), and rests while its rows cannot lead to an answer: an
    aggregate answers when a window closes, and until then rows wait in the log at no cost.
    """

    __slots__ = (
        "_fits",
        "_fits_for",
        "_longest",
        "_rows",
        "attached",
        "collector",
        "downstream",
        "emits_at",
        "held",
        "idle",
        "linger",
        "lingers",
        "number",
        "passed",
        "permitted",
        "query",
        "rested_until",
        "rests",
        "room",
        "screenings",
        "select",
        "slot",
        "state",
        "train",
        "windows",
        "work",
    )

    kind = OperatorKind.SOURCE
    operator = "source"
    leaf = stepped = False
    progress = 0

    def __init__(self, number: int, work: Source, query: RunningQuery, train: TrainSize, room: int) -> None:
        """`room` is the number of rows in the query's queues at which it stops reading."""
        self.number = number
        self.work = work
        self.query = query
        self.train, self._longest = train
        self._fits = 0  # rows that can be processed in the time of a train, by the costs in these units
        self._fits_for: QueryUnits | None = None
        self._rows = 0  # of the next train
        self.slot = 2 * [node.name for node in query.request.plan.sources].index(work.name)
        """The index of its positions in those of the query."""
        self.room = room
        self.downstream: Sequence[OperatorView] = ()
        self.state = OperatorState.SUSPEND
        self.held = False
        self.attached = False
        """Whether the intake serves it: not while the query is paused."""
        self.collector = StatisticsCollector()
        self.linger = Linger()
        """How long it waits for more rows."""
        self.lingers = False
        """Whether it waits for more rows, until `emits_at` (ns)."""
        self.emits_at = 0
        self.permitted = 0
        """How long the policy permits it to wait (ns): what it answered last."""
        self.windows: Sequence[WindowedOperator] = ()
        """The operators above it that answer when a window closes, if nothing is answered without them."""
        self.select: Task | None = None
        """The select that alone reads it; None if there is none."""
        self.passed = self.screenings = 0
        """Rows that it passed over since its select last ran, and how often it did."""
        self.rests = False
        """Whether it was resting when it began to wait."""
        self.rested_until = 0
        """When it rested last (UTC, ns): the rows that waited until then did not wait for a turn."""
        self.idle = True
        """Whether the engine was idle when it became ready."""
        self.aim_at(query.request.latency_target)

    def aim_at(self, target: int | None) -> None:
        """Linger at most a quarter of a latency target (us); None for no target."""
        self.linger.aim_at(target)

    def become(self, state: OperatorState) -> None:
        """Change the state; raises IllegalMove."""
        self.state = move("source", self.work.name, self.state, state, OPERATOR_MOVES)

    @property
    def has_room(self) -> bool:
        """Whether the query's queues have room for more rows."""
        return self.query.network.account.has_room(self.room)

    @property
    def resting(self) -> bool:
        """Whether no row that waits can lead to an answer yet."""
        if not self.windows:
            return False
        watermark = self.work.stream_watermark
        return all(watermark < window.closes_at for window in self.windows)

    @property
    def ready(self) -> bool:
        """Whether it can emit a batch now and need not wait for more rows."""
        if not self.attached or self.work.ended or not self.work.behind:
            return False
        if (
            self.state is not OperatorState.READY
            and self.work.waiting_rows < self.train
            and (self.linger.wait(self.permitted) or self.resting)
        ):
            return False
        if self.has_room:
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
        """When the next row to be read arrived, or could first be of use; None if there is none."""
        arrival = self.work.next_arrival
        return arrival if arrival is None or arrival > self.rested_until else self.rested_until

    @property
    def statistics(self) -> Statistics:
        """The statistics as last published."""
        return self.collector.published

    @property
    def place(self) -> int | None:
        """Where it is in the log, if it could pass over rows that its select would drop; else None."""
        select, work = self.select, self.work
        if select is None or self.state is not OperatorState.SUSPEND or len(work.outputs) != 1:
            return None
        for queue in select.work.outputs:
            if queue.takes_watermarks:
                return None
        return work.place

    def skip(self, rows: int, after: CursorState, mark: Mark, read_to: int) -> None:
        """Pass over rows that its select would drop; see `Source.skip`."""
        self.work.skip(rows, after, mark, read_to)
        self.passed += rows
        self.screenings += 1

    def settle(self) -> None:
        """Add the rows that it passed over to the statistics of its select."""
        passed, calls, select = self.passed, self.screenings, self.select
        if not passed or select is None:
            return
        self.passed = self.screenings = 0
        if select.collector.add(passed, 0, 0, calls * _SKIP_NS, calls) and self.query.units.moved(select):
            self.query.outdated = True

    def choose(self, most: int | None) -> None:
        """Choose the rows that it reads next: a train, or at most `most`."""
        if self.passed:
            self.settle()
        train, waiting = self.train, self.work.waiting_rows
        if train < self._longest and waiting > train:
            train = min(max(self._rows_in_time(), train), self._longest)
        self._rows = train if most is None else min(most, train)
        position, slot = self.work.cursor.position, self.slot
        positions = self.query.positions
        positions[slot] = position
        positions[slot + 1] = position + min(self._rows, waiting)

    def run(self, most: int | None) -> int:
        """Emit the rows that were chosen; returns their number."""
        rows = self.work.read(self._rows)
        self.linger.adapt(rows, self.train, self.idle, self.permitted)
        return rows

    def _rows_in_time(self) -> int:
        """Return how many rows can be processed in the time of a train, by measured costs."""
        units = self.query.units
        if units is not self._fits_for:
            cost = max((units.turn_cost(reader) for reader in self.downstream), default=0.0)
            fits = int(_TRAIN_NS / max(cost + self.statistics.cost_per_tuple, 1.0))
            # Whole trains: a read that ends inside a frame costs twice, here and where the next one begins.
            self._fits = round(fits / self.train) * self.train
            self._fits_for = units
        return self._fits

    def due(self, now: int) -> bool:
        """Whether to emit now rather than to wait for more rows, even if there is other work."""
        if now >= self.emits_at or self.work.waiting_rows >= self.train:
            return True
        return self.rests and not self.resting

    def end_rest(self, now: int) -> None:
        """Note that it does not rest any longer, if it did."""
        if self.rests:
            self.rests, self.rested_until = False, now
