"""Intake: detects new rows in stream logs, and decides when sources emit them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from mavstream_server.engine.crash_record import CrashRecord
from mavstream_server.engine.policy_host import PolicyHost
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.sources.screen import Screen
from mavstream_server.engine.sources.source_task import SourceTask
from mavstream_server.engine.states import OperatorState
from mavstream_server.log.reader import LogReader
from mavstream_server.scheduling.policy import LONGEST_WAIT, SourceService

_LOOK_SLICES = 32
_LOOK_SHARE = 20
"""Checking the logs takes about a twentieth (1 / _LOOK_SHARE) of the time under load."""
_LOOK_NS = 200  # ns that checking a stream takes at least
_AT_ONCE = 2
"""Sources served between two slices. A batch takes two slices or more, so that with many sources operators
would fall behind, and rows grow old in queues, if all sources were served each time."""


@dataclass(slots=True)
class StreamFeed:
    """The log of an attached stream, and the sources that read it."""

    reader: LogReader
    screen: Screen
    sources: list[SourceTask] = field(default_factory=list)


class Intake:
    """Queues sources that have unread rows and serves them, or notifies the policy that they are ready."""

    def __init__(
        self,
        monotonic: Callable[[], int],
        failed: Callable[[RunningQuery, str, Exception], None],
        policy_host: PolicyHost,
        record: CrashRecord,
        patient: bool = False,
    ) -> None:
        """`monotonic` is the clock that work is measured with (ns).

        `failed` is called with a query, the name of its source that cannot read, and the exception.

        `policy_host` says how sources are served, and is notified of those that the policy serves.

        `record` notes which source reads.

        `patient` sources also rest while there is nothing else to do: `step` must be called at `rest_ends`.
        """
        self._monotonic = monotonic
        self._failed = failed
        self._policy_host = policy_host
        self._record = record
        self.feeds: dict[str, StreamFeed] = {}
        self._of_query: dict[str, list[tuple[str, SourceTask]]] = {}
        self.look_at_slice = self.look_at_busy = 0
        """Logs are checked when this many slices were run, or this many nanoseconds were spent in them."""
        self._queue: deque[SourceTask] = deque()
        self._lingering: list[tuple[int, int, SourceTask]] = []  # a heap by the end of their linger
        self._resting: list[tuple[int, int, SourceTask]] = []  # a heap by the end of their rest
        self._patient = patient
        self.passed = 0
        """How often a source passed over rows that its query would drop."""

    @property
    def service(self) -> SourceService:
        """How sources are served."""
        return self._policy_host.service

    def attach(self, stream: str, reader: LogReader) -> None:
        """Attach a stream's log."""
        self.feeds[stream] = StreamFeed(reader, Screen(reader, self._monotonic))

    def detach(self, stream: str) -> None:
        """Detach a stream's log, which no source may read."""
        del self.feeds[stream]

    @property
    def readers(self) -> dict[str, LogReader]:
        """The logs of the attached streams."""
        return {stream: feed.reader for stream, feed in self.feeds.items()}

    def needed(self) -> dict[str, tuple[int, str, int]]:
        """Return, by stream, the lowest position that is read, the query that is there, the highest one."""
        return {
            stream: (*min(reading), max(reading)[0])
            for stream, feed in self.feeds.items()
            if (
                reading := [
                    (task.work.cursor.position, id_)
                    for task in feed.sources
                    if not task.work.ended and (id_ := task.query.known_as) is not None
                ]
            )
        }

    def add(self, stream: str, task: SourceTask) -> None:
        """Start to serve a source."""
        feed = self.feeds[stream]
        feed.sources.append(task)
        task.attached = True
        # Read batches are shared only between several sources: storing them for others takes memory.
        for source in feed.sources if len(feed.sources) == 2 else (task,):
            source.work.shared = feed.reader.shared if len(feed.sources) > 1 else None
        self._of_query.setdefault(task.query.id, []).append((stream, task))
        self._wake((task,), 0)

    def remove(self, query: RunningQuery) -> None:
        """Stop serving the sources of a query."""
        for _, task in tuple(self._of_query.get(query.id, ())):
            self.withdraw(task)

    def withdraw(self, task: SourceTask) -> None:
        """Stop serving one source."""
        served = self._of_query[task.query.id]
        (stream,) = (stream for stream, other in served if other is task)
        served.remove((stream, task))
        if not served:
            del self._of_query[task.query.id]
        self.feeds[stream].sources.remove(task)
        task.attached = False
        if task.state is OperatorState.READY:
            task.state = OperatorState.SUSPEND
        task.lingers = False
        self._queue = deque(other for other in self._queue if other is not task)

    def restart(self) -> None:
        """Reset all sources: they are served in another way from now on."""
        self._queue.clear()
        self._lingering.clear()
        self._resting.clear()
        tasks = [task for feed in self.feeds.values() for task in feed.sources]
        for task in tasks:
            task.lingers = False
            if task.state is OperatorState.READY:
                task.state = OperatorState.SUSPEND
        self._wake(tasks, 0)

    def look_between(self, now: int, slices: int, busy: int) -> None:
        """Check the logs, and schedule the next check by slices and by the time that this one took."""
        begin = self._monotonic()
        self.look(now, busy=True)
        took = max(self._monotonic() - begin, _LOOK_NS * len(self.feeds))
        self.look_at_slice = slices + _LOOK_SLICES
        self.look_at_busy = busy + _LOOK_SHARE * took

    def look(self, now: int, busy: bool = False) -> None:
        """Check all logs for new rows; takes well below a microsecond per stream without any.

        `busy` is whether there is anything else to do.
        """
        for feed in self.feeds.values():
            if not feed.sources or (busy and now < feed.screen.due):
                continue
            try:
                grown = feed.reader.grown()
            except Exception as error:
                for task in tuple(feed.sources):
                    self._failed(task.query, task.work.name, error)
                continue
            if grown:
                self._wake(self._sifted(feed, now), now)

    def _sifted(self, feed: StreamFeed, now: int) -> Sequence[SourceTask]:
        """Return the sources that are to read new rows; the others have passed over them."""
        left = feed.screen.sift(feed.sources, now)
        self.passed += len(feed.sources) - len(left)
        return left

    def unblock(self, query: RunningQuery, now: int) -> None:
        """Let the sources of a query read on, and those that read for it: its queues have drained."""
        query.blocked = False
        self._wake([task for _, task in self._of_query.get(query.id, ())], now)
        for member in query.shared:
            if member.pipeline.blocked and member.pipeline.has_room:
                self.unblock(member.pipeline, now)

    @property
    def waiting(self) -> bool:
        """Whether any source is queued, lingers or rests."""
        return bool(self._queue or self._lingering or self._resting)

    @property
    def rest_ends(self) -> int | None:
        """When the first source stops to rest (UTC, ns), at the latest; None if none rests."""
        resting = [task.emits_at for task in self._queue if task.rests]
        if self._resting:
            resting.append(self._resting[0][0])
        return min(resting, default=None)

    def serve(self, now: int, idle: bool) -> bool:
        """Let the sources that have waited longest emit a train each; returns whether any did."""
        if self.service is SourceService.PER_CLASS:
            return self._release(now, idle)
        waiting = most = len(self._queue)
        if self.service is SourceService.BETWEEN_SLICES:
            most = min(most, _AT_ONCE)
        served = False
        for _ in range(waiting):
            if not most or not self._queue:  # those of a query that failed were removed
                break
            task = self._queue.popleft()
            served = self._serve(task, now, idle) or served
            # Blocked ones do not count: they may wait for one behind them, which reads their query's results.
            most -= not task.query.blocked
        return served

    def _serve(self, task: SourceTask, now: int, idle: bool) -> bool:
        """Let a source emit if it is due; it is queued again while it has unread rows."""
        source = task.work
        task.state, task.idle = OperatorState.SUSPEND, idle
        try:
            if not _may_read(task):
                task.query.blocked = True
                return False
            due = task.due(now) or (idle and not (task.rests and self._patient))
            if due:
                self._emit(task)
                self._set_wait(task, now)
            if not due or (source.behind and not source.ended):
                task.state = OperatorState.READY
                self._queue.append(task)
        except Exception as error:
            self._failed(task.query, source.name, error)
            return False
        return due

    def _emit(self, task: SourceTask) -> None:
        work, begin = task.work, self._monotonic()
        rows_before, bytes_before = work.rows_out, work.bytes_out
        task.choose(None)
        self._record.begin(task.query.note, task.query.noted_positions, begin)
        rows = task.run(None)
        self._record.end()
        task.collector.add(
            rows, work.rows_out - rows_before, work.bytes_out - bytes_before, self._monotonic() - begin, 1
        )

    def _set_wait(self, task: SourceTask, now: int) -> int:
        """Decide until when a source waits for more rows; returns how long (ns)."""
        task.end_rest(now)
        task.rests = task.resting
        if task.rests:
            wait = LONGEST_WAIT
        else:
            task.permitted = self._policy_host.policy.may_wait(task)
            wait = task.linger.wait(task.permitted)
        task.emits_at = now + wait
        return wait

    # Sources that the policy serves

    def _release(self, now: int, idle: bool) -> bool:
        """Notify the policy of sources whose linger has ended, or of all if idle; returns whether any had."""
        released = self._release_from(self._lingering, now, idle)
        return self._release_from(self._resting, now, idle and not self._patient) or released

    def _release_from(self, waiting: list[tuple[int, int, SourceTask]], now: int, all_of_them: bool) -> bool:
        released = False
        while waiting and (all_of_them or waiting[0][0] <= now):
            due, _, task = heappop(waiting)
            if task.lingers and due == task.emits_at:
                task.lingers = False
                task.end_rest(now)
                released = self._notify_policy(task, idle=all_of_them) or released
        return released

    def _notify_policy(self, task: SourceTask, idle: bool) -> bool:
        if task.state is not OperatorState.SUSPEND or task.work.ended or not task.work.behind:
            return False
        if not task.has_room:
            task.query.blocked = True
            return False
        task.state, task.idle = OperatorState.READY, idle
        if not task.held:
            self._policy_host.woken(task)
        return True

    def rest(self, task: SourceTask, now: int) -> None:
        """Let a source that has emitted a batch linger or become ready again, if it has unread rows."""
        if task.state is OperatorState.SUSPEND and not task.lingers and task.work.behind:
            self._wake((task,), now)

    def _wake(self, tasks: Iterable[SourceTask], now: int) -> None:
        scheduled = self.service is SourceService.PER_CLASS
        for task in tasks:
            if task.state is not OperatorState.SUSPEND or task.work.ended:
                continue
            if not scheduled:
                self._set_wait(task, now)
                task.state = OperatorState.READY
                self._queue.append(task)
                continue
            full = task.work.waiting_rows >= task.train
            if task.lingers and not full and (task.resting or not task.rests):
                continue
            if full:
                task.end_rest(now)
            if full or not self._set_wait(task, now):
                task.lingers = False
                self._notify_policy(task, idle=False)
            else:
                task.lingers = True
                waiting = self._resting if task.rests else self._lingering
                heappush(waiting, (task.emits_at, task.number, task))


def _may_read(task: SourceTask) -> bool:
    """Whether a source may emit: its last batch was consumed, or a whole train is unread.

    So under load rows accumulate in the log, and each run of a query processes as many as there are.
    """
    return task.has_room and (not task.work.untaken or task.work.waiting_rows >= task.train)
