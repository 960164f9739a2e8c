"""The flusher: appends queued frames of all streams to their logs and settles their handles."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from mavstream_server.core.clock import Clock
from mavstream_server.core.errors import SequenceGap, ServiceError, StorageFailed
from mavstream_server.core.event_loop.background import Background
from mavstream_server.core.event_loop.importance_queue import ImportanceQueue
from mavstream_server.core.importance import Importance
from mavstream_server.ingest.append_handle import PendingAppend
from mavstream_server.ingest.retention import StreamRetention
from mavstream_server.ingest.stream_writer import Settlement, StreamWriter
from mavstream_server.log import LogEnd, Sync

_LOG = logging.getLogger("mavstream.streams")

_TURN = 150_000
"""How long, in ns, one turn of appending may block the event loop. Streams whose turn comes later collect
more frames in the meantime, which makes them cheaper, and incoming messages are stamped without delay."""
_OLDEST_EVERY = 16
"""After so many turns, the stream that has waited longest is served, however important the others are."""
_PAUSE_FACTOR = 9
"""How many times longer than the last turn the pause before the next one is, if all queued rows may wait.
An append costs nearly the same for two rows and for twenty: this limits appending to a tenth of the time."""
_LONGEST_PAUSE = 10_000_000
"""Upper bound of that pause, in ns."""
_ROUND = 1_000_000
"""How long, in ns, ringing the engine's doorbell is delayed for the other streams of the same round: waking
the engine for each stream costs more than their rows do."""


class Timers(Protocol):
    """Schedules calls; an asyncio event loop is one."""

    def call_soon(self, callback: Callable[[], None]) -> object:
        """Call back at the end of the current turn of the event loop."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> object:
        """Call back after so many seconds."""


class CreditListener(Protocol):
    """Notified of streams that take rows again."""

    def credit_returned(self, stream: str) -> None:
        """Let the producers of a stream that was held send again."""


class Flusher:
    """Appends what is queued, the most important streams first.

    Each stream has one queue, first come first served, that a flush empties as far as there is space; the
    rest stays queued until there is, except entries that do not wait: these fail.

    Without `timers`, `flush` must be called by hand. `ring` is called after each round of appends.
    """

    def __init__(
        self,
        retention: StreamRetention,
        clock: Clock,
        background: Background,
        importance: Importance,
        *,
        timers: Timers | None,
        ring: Callable[[], None],
        producers: CreditListener | None,
    ) -> None:
        self._retention = retention
        self._clock = clock
        self._background = background
        self._importance = importance
        self._timers = timers
        self.ring = ring
        self._producers = producers
        self.last_append = clock.monotonic()
        """When anything was last appended to a stream."""
        self._busy: ImportanceQueue[str, StreamWriter] = ImportanceQueue()
        self._turns = 0  # turns since the stream that waited longest was served
        self._gathering: dict[str, StreamWriter] = {}  # streams whose rows may wait for the end of the pause
        self._pause_until = clock.monotonic()
        self._pausing = False  # whether a timer for the end of the pause is set
        self._settled: list[Settlement] = []
        self._unrung: int | None = None  # since when there are appends that the doorbell was not rung for
        self._scheduled = False
        self._flushing = False

    def stop(self) -> None:
        """Flush by hand only, from here on."""
        self._timers = None

    def put(self, log: StreamWriter, item: PendingAppend, *, gathers: bool = False) -> None:
        """Queue an entry for the next flush; one that gathers may wait for a short pause before it."""
        log.put(item)
        if log.held is not None:
            return
        if gathers and self._timers is not None:
            self._gather(log, self._timers)
        else:
            self._request(log)

    def flush(self, now: int | None = None) -> None:
        """Append everything queued, ring once, then settle the handles; `now` is UTC in ns."""
        self._wake()
        arrival = self._clock.now() if now is None else now
        self._flush(arrival, self._drain_all)

    def _turn(self) -> None:
        """Append for a bounded time; the remaining streams get the next turn."""
        begin = self._clock.monotonic()
        self._flush(self._clock.now(), partial(self._drain_some, begin + _TURN))
        end = self._clock.monotonic()
        longest = end + _LONGEST_PAUSE
        self._pause_until = min(max(self._pause_until, end) + _PAUSE_FACTOR * (end - begin), longest)
        if self._busy:
            self._schedule()

    def _flush(self, arrival: int, drain: Callable[[int], bool]) -> None:
        self._scheduled = False
        self._flushing = True
        try:
            more = drain(arrival)
        finally:
            self._flushing = False
        if self._unrung is not None and not (more and self._clock.monotonic() < self._unrung + _ROUND):
            self._unrung = None
            self.ring()
        self._settle()

    def _drain_all(self, arrival: int) -> bool:
        while self._busy:
            self._drain(self._busy.pop(), arrival)
        return False

    def _drain_some(self, until: int, arrival: int) -> bool:
        """Drain streams of one importance for a bounded time; return whether there are more of them.

        The doorbell is not rung later, nor are acks sent later, because of less important streams.
        """
        if not self._busy:
            return False
        self._turns += 1
        if self._turns > _OLDEST_EVERY:
            self._turns = 0
            self._drain(self._busy.pop_oldest(), arrival)
            return False
        importance = self._busy.highest
        while True:
            self._drain(self._busy.pop(), arrival)
            if not self._busy or self._busy.highest < importance:
                return False
            if self._clock.monotonic() >= until:
                return True

    def release(self, log: StreamWriter) -> None:
        """Unblock the queue of a held stream if there is space again."""
        first = next((item for item in log.queue if item.frame is not None), None)
        shortage = self._retention.shortage(log, 0 if first is None else first.cost)
        if shortage is not None:
            log.held = shortage
            return
        log.held = None
        if log.queue:
            self._request(log)
        self.return_credit(log)

    def return_credit(self, log: StreamWriter) -> None:
        """Tell the producers of a stream that it takes rows again."""
        if self._producers is not None:
            self._producers.credit_returned(log.spec.name)

    def drop(self, log: StreamWriter, error: ServiceError) -> None:
        """Fail everything that is queued on a stream."""
        self._settled += log.drop_queue(error)
        self._busy.discard(log.spec.name)
        self._gathering.pop(log.spec.name, None)
        self._settle()

    def _request(self, log: StreamWriter) -> None:
        self._make_busy(log)
        self._schedule()

    def _schedule(self) -> None:
        if self._timers is not None and not self._scheduled:
            self._scheduled = True
            self._timers.call_soon(self._turn)

    def _gather(self, log: StreamWriter, timers: Timers) -> None:
        """Let a stream's rows wait until the pause is over, which may be now."""
        self._gathering[log.spec.name] = log
        if self._pausing:
            return
        left = self._pause_until - self._clock.monotonic()
        if left > 0:
            self._pausing = True
            timers.call_later(left / 1e9, self._pause_over)
        else:
            self._pause_over()

    def _pause_over(self) -> None:
        self._pausing = False
        self._wake()
        if self._busy:
            self._schedule()

    def _wake(self) -> None:
        # They are flushed together: rows that arrive during the flush wait for the next one.
        for log in self._gathering.values():
            self._make_busy(log)
        self._gathering.clear()

    def _make_busy(self, log: StreamWriter) -> None:
        name = log.spec.name
        self._busy.put(self._importance.of_stream(name), name, log)

    def _drain(self, log: StreamWriter, arrival: int) -> None:
        """Append what a stream's queue holds. Handles settle later."""
        while not log.syncing and log.writer is not None and (items := self._take(log)):
            before = log.nbytes
            monotonic = self._clock.monotonic()
            written, error = log.write(items, arrival, monotonic)
            self._retention.disk += log.nbytes - before
            self.last_append = monotonic
            if written and self._unrung is None:
                self._unrung = monotonic
            if error is not None:
                # Frames behind a lost one would leave a gap: all are rejected, and the producer resends them.
                self._settled += [(item, error) for item in items[len(written) :]]
                self._settled += log.drop_queue(error)
            self._commit(log, written, reopened=error is not None)
        if log.failure is not None:
            self._settled += log.drop_queue(log.failure)
        elif not log.syncing and log.held is None and self._retention.limited(log):
            # Checked before the next frame arrives, so that the ack sent now carries no credit.
            log.held = self._retention.shortage(log, 0)

    def _take(self, log: StreamWriter) -> list[PendingAppend]:
        """Take from the queue what there is space for; reject entries that do not continue their sequence."""
        items: list[PendingAppend] = []
        lasts: dict[int, int] = {}
        cost = 0
        limited = self._retention.limited(log)
        queue = log.queue
        while queue and log.held is None:
            item = queue[0]
            sequence, number = item.handle.sequence, item.producer
            last = lasts.get(number) or log.last.get(number, 0)
            first = item.handle.first
            if number and not (
                first == last + 1 or (item.skips and first > last)
                if item.frame is not None
                else sequence <= last
            ):
                gap = SequenceGap(str(item.handle.producer), log.spec.name, last + 1, first)
                self._settled.append((item, gap))
            elif (
                item.frame is not None
                and limited
                and (shortage := self._retention.shortage(log, cost + item.cost))
            ):
                if items:
                    break  # appending these may make space
                if item.parks:
                    log.held = shortage
                    break
                self._settled.append((item, shortage))
            else:
                items.append(item)
                cost += item.cost
                if number and sequence:
                    lasts[number] = max(last, sequence)
            log.dequeued(queue.popleft())
        if log.held is not None:
            self._refuse_impatient(log)
        return items

    def _refuse_impatient(self, log: StreamWriter) -> None:
        """Fail the entries of a blocked queue that do not wait for space."""
        assert log.held is not None
        for item in [item for item in log.queue if not item.parks]:
            log.queue.remove(item)
            log.dequeued(item)
            self._settled.append((item, log.held))

    def _commit(self, log: StreamWriter, written: list[Settlement], reopened: bool) -> None:
        if not written or log.options.sync is not Sync.GROUP:
            self._settled += written
            return
        # A reopened writer does not know what its predecessor left unsynced.
        work = log.sync_files if reopened or log.writer is None else log.writer.flush
        # Nothing is appended until the thread returns; the queue collects the next group commit.
        log.syncing = True
        self._background.run(work, partial(self._synced, log, written))

    def _synced(self, log: StreamWriter, written: list[Settlement], error: BaseException | None) -> None:
        log.syncing = False
        if error is None:
            log.unsynced.clear()
            if log.writer is not None:
                log.synced = LogEnd(log.writer.end, log.writer.watermark)
            self._settled += written
        else:
            # What the disk holds is unknown after a failed sync, and a second sync may wrongly succeed.
            _LOG.error("sync failed", extra={"stream": log.spec.name, "reason": str(error)})
            log.failure = StorageFailed(
                f"stream '{log.spec.name}' could not be synced to disk ({error}): it takes no rows until "
                "the server is restarted",
            )
            log.broken = True
            self._settled += [(item, log.failure) for item, _ in written]
            self._settled += log.drop_queue(log.failure)
        if log.queue and log.held is None:
            self._request(log)
        if not self._flushing:
            self._settle()

    def _settle(self) -> None:
        settled, self._settled = self._settled, []
        for item, result in settled:
            item.handle.settle(result)
