"""From the queues of streams into their logs: together, in order, and told when it is safe."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import partial

from mavstream_server.core.clock import Clock
from mavstream_server.core.errors import SequenceGap, ServiceError, StorageFailed
from mavstream_server.ingest.append_handle import PendingAppend
from mavstream_server.ingest.background import Background
from mavstream_server.ingest.retention import StreamRetention
from mavstream_server.ingest.stream_writer import StreamWriter, Told
from mavstream_server.log import Sync

_LOG = logging.getLogger("mavstream.streams")

_TURN = 150_000
"""How long, in ns, appending keeps the event loop from what else there is. A stream whose turn comes later
gathers frames meanwhile, which then cost less, and what comes in is stamped when it comes."""
_REST = 9
"""How many times as long as appending took the next wait is, if only rows that may wait are there. An append
costs much the same for two rows and for twenty, so rows of many streams cost a tenth of the time at most."""
_LONGEST_REST = 10_000_000
"""How long, in ns, they wait at most."""
_ROUND = 1_000_000
"""How long, in ns, the engine's bell waits for the other streams of a round: waking it for each of them costs
more than they do."""


class Flusher:
    """Appends what waits. Each stream has one queue, first come first served, that a flush empties as far
    as there is room; the rest is held there until there is, and whoever does not wait is refused.
    """

    def __init__(self, keeper: StreamRetention, clock: Clock, background: Background) -> None:
        self._keeper = keeper
        self._clock = clock
        self._background = background
        self.news: Callable[[], None] = lambda: None
        self.soon: Callable[[Callable[[], None]], object] | None = None
        self.later: Callable[[float, Callable[[], None]], object] | None = None
        self.credit_returned: Callable[[str], None] = lambda stream: None
        self.last_rows = clock.monotonic()
        """When any stream last got something."""
        self._busy: dict[str, StreamWriter] = {}
        self._gathering: dict[str, StreamWriter] = {}  # what may wait until rest is over
        self._rest_until = clock.monotonic()
        self._resting = False  # whether the end of the rest will be told
        self._told: list[Told] = []
        self._unrung: int | None = None  # since when there is something that the bell was not rung for
        self._scheduled = False
        self._flushing = False

    def put(self, log: StreamWriter, item: PendingAppend, *, gathers: bool = False) -> None:
        """Queue an item for the next flush, which for one that gathers need not be at once."""
        log.put(item)
        if log.held is not None:
            return
        if gathers and self.later is not None:
            self._gather(log, self.later)
        else:
            self._request(log)

    def flush(self, now: int | None = None) -> None:
        """Append all that was offered, ring once, then settle the tickets; `now` is UTC in ns."""
        self._wake()
        self._flush(self._clock.now() if now is None else now, math.inf)

    def _turn(self) -> None:
        """Append for a while; the streams that are left have the next turn."""
        begin = self._clock.monotonic()
        self._flush(self._clock.now(), begin + _TURN)
        end = self._clock.monotonic()
        longest = end + _LONGEST_REST
        self._rest_until = min(max(self._rest_until, end) + _REST * (end - begin), longest)
        if self._busy:
            self._schedule()

    def _flush(self, arrival: int, until: float) -> None:
        self._scheduled = wrote = False
        self._flushing = True
        try:
            while self._busy:
                wrote |= self._drain(self._busy.pop(next(iter(self._busy))), arrival)
                if self._clock.monotonic() >= until:
                    break
        finally:
            self._flushing = False
        if wrote and self._unrung is None:
            self._unrung = self._clock.monotonic()
        if self._unrung is not None and not (self._busy and self._clock.monotonic() < self._unrung + _ROUND):
            self._unrung = None
            self.news()
        self._tell()

    def release(self, log: StreamWriter) -> None:
        """Let a held stream go on if there is room again."""
        first = next((item for item in log.queue if item.frame is not None), None)
        problem = self._keeper.shortage(log, 0 if first is None else first.cost)
        if problem is not None:
            log.held = problem
            return
        log.held = None
        if log.queue:
            self._request(log)
        self.credit_returned(log.spec.name)

    def drop(self, log: StreamWriter, problem: ServiceError) -> None:
        """Tell all that waits on a stream that it will not be taken."""
        self._told += log.drop_queue(problem)
        self._busy.pop(log.spec.name, None)
        self._gathering.pop(log.spec.name, None)
        self._tell()

    def _request(self, log: StreamWriter) -> None:
        self._busy[log.spec.name] = log
        self._schedule()

    def _schedule(self) -> None:
        if self.soon is not None and not self._scheduled:
            self._scheduled = True
            self.soon(self._turn)

    def _gather(self, log: StreamWriter, later: Callable[[float, Callable[[], None]], object]) -> None:
        """Let a stream wait until the rest is over, which may be now."""
        self._gathering[log.spec.name] = log
        if self._resting:
            return
        left = self._rest_until - self._clock.monotonic()
        if left > 0:
            self._resting = True
            later(left / 1e9, self._rested)
        else:
            self._rested()

    def _rested(self) -> None:
        self._resting = False
        self._wake()
        if self._busy:
            self._schedule()

    def _wake(self) -> None:
        # They go together and whole: what comes while they are appended waits for the next time.
        self._busy |= self._gathering
        self._gathering.clear()

    def _drain(self, log: StreamWriter, arrival: int) -> bool:
        """Append what a stream's queue has; return whether there was something. Tickets are told later."""
        wrote = False
        while not log.syncing and log.writer is not None and (items := self._take(log)):
            before = log.nbytes
            monotonic = self._clock.monotonic()
            told, problem = log.write(items, arrival, monotonic)
            self._keeper.disk += log.nbytes - before
            self.last_rows = monotonic
            wrote |= bool(told)
            if problem is not None:
                # What follows a lost frame would be a gap: all is refused, and sent again.
                self._told += [(item, problem) for item in items[len(told) :]]
                self._told += log.drop_queue(problem)
            self._commit(log, told, reopened=problem is not None)
        if log.failure is not None:
            self._told += log.drop_queue(log.failure)
        elif not log.syncing and log.held is None and self._keeper.limited(log):
            # Told before the next frame comes: the ack that goes out now carries no credit.
            log.held = self._keeper.shortage(log, 0)
        return wrote

    def _take(self, log: StreamWriter) -> list[PendingAppend]:
        """Take from the queue what there is room for; refuse what no longer fits its producer's sequence."""
        items: list[PendingAppend] = []
        lasts: dict[int, int] = {}
        cost = 0
        limited = self._keeper.limited(log)
        queue = log.queue
        while queue and log.held is None:
            item = queue[0]
            sequence, number = item.ticket.sequence, item.producer
            last = lasts.get(number) or log.last.get(number, 0)
            first = item.ticket.first
            if number and not (first == last + 1 if item.frame is not None else sequence <= last):
                gap = SequenceGap(str(item.ticket.producer), log.spec.name, last + 1, first)
                self._told.append((item, gap))
            elif (
                item.frame is not None and limited and (short := self._keeper.shortage(log, cost + item.cost))
            ):
                if items:
                    break  # after these it may look different
                if item.parks:
                    log.held = short
                    break
                self._told.append((item, short))
            else:
                items.append(item)
                cost += item.cost
                if number and sequence:
                    lasts[number] = max(last, sequence)
            log.taken(queue.popleft())
        if log.held is not None:
            self._refuse_impatient(log)
        return items

    def _refuse_impatient(self, log: StreamWriter) -> None:
        """Refuse what is in a queue that stands still and does not want to wait."""
        assert log.held is not None
        for item in [item for item in log.queue if not item.parks]:
            log.queue.remove(item)
            log.taken(item)
            self._told.append((item, log.held))

    def _commit(self, log: StreamWriter, told: list[Told], reopened: bool) -> None:
        if not told or log.options.sync is not Sync.GROUP:
            self._told += told
            return
        # A writer that was opened again knows nothing of what its predecessor left to be synced.
        work = log.sync_files if reopened or log.writer is None else log.writer.flush
        # Until the thread is back nothing is appended: the queue gathers what the next one carries.
        log.syncing = True
        self._background.run(work, partial(self._synced, log, told))

    def _synced(self, log: StreamWriter, told: list[Told], error: BaseException | None) -> None:
        log.syncing = False
        if error is None:
            log.unsynced.clear()
            self._told += told
        else:
            # What the disk has is unknown from here on, and asking again can give a wrong yes.
            _LOG.error("sync failed", extra={"stream": log.spec.name, "reason": str(error)})
            log.failure = StorageFailed(
                f"stream '{log.spec.name}' could not be brought to disk ({error}): it takes no rows until "
                "the server is started again",
            )
            log.broken = True
            self._told += [(item, log.failure) for item, _ in told]
            self._told += log.drop_queue(log.failure)
        if log.queue and log.held is None:
            self._request(log)
        if not self._flushing:
            self._tell()

    def _tell(self) -> None:
        told, self._told = self._told, []
        for item, what in told:
            item.ticket.settle(what)
