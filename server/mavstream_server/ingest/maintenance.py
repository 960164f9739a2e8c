"""Periodic maintenance of streams: clock and idle marks, retention, unblocking held queues."""

from __future__ import annotations

from collections.abc import Mapping

from mavstream_server.core.clock import Clock
from mavstream_server.core.importance import Importance
from mavstream_server.ingest.flusher import Flusher
from mavstream_server.ingest.retention import Readers, StreamRetention
from mavstream_server.ingest.stream_writer import StreamWriter
from mavstream_server.log import FrameKind

PERIOD = 100_000_000
"""Interval of maintenance, and of clock marks in busy streams, in nanoseconds."""
_SLACK = PERIOD // 10  # timers are not exact, and a mark should not wait another round because of that
_RAREST_MARK = 10 * PERIOD
_SLOW_PERIOD = 10 * PERIOD


class StreamMaintenance:
    """Runs the periodic work of all streams.

    Windows on arrival time close by clock marks, so streams that such windows read are marked even if they
    are silent: another input of the same query may wait for them. A stream that gets rows needs no mark:
    rows advance its time. While no stream gets rows, marks become rarer, down to one per second, so that a
    window closes late by at most 1 % of the silence. A mark takes 128 bytes: 1.3 kB/s per stream while
    others are busy, 11 MB a day when nothing happens.
    """

    def __init__(
        self,
        logs: Mapping[str, StreamWriter],
        flusher: Flusher,
        retention: StreamRetention,
        readers: Readers,
        importance: Importance,
        clock: Clock,
        credit_bytes: int,
    ) -> None:
        self._logs = logs
        self._flusher = flusher
        self._retention = retention
        self._readers = readers
        self._importance = importance
        self._clock = clock
        self._credit = credit_bytes
        self._slow_since = clock.monotonic()

    def run(self, now: int | None = None) -> None:
        """Run the work that is due; to be called about every PERIOD."""
        arrival = self._clock.now() if now is None else now
        monotonic = self._clock.monotonic()
        interval = min(max(PERIOD, (monotonic - self._flusher.last_append) // 100), _RAREST_MARK) - _SLACK
        marked = False
        for log in self._logs.values():
            self._watch_overload(log, monotonic)
            if log.writer is None or log.syncing or log.completed:
                continue
            by_arrival = log.spec.event_time is None
            overdue = arrival - log.writer.last_arrival >= interval
            if overdue and by_arrival and self._readers.waits_for_time(log.spec.name):
                marked |= log.mark(FrameKind.CLOCK, arrival)
            if log.alive or log.recovered:
                marked |= self._mark_idle(log, arrival, monotonic)
        if monotonic - self._slow_since >= _SLOW_PERIOD:
            self._slow_since = monotonic
            self._rarely(monotonic)
        for log in list(self._logs.values()):
            if log.held is not None:
                self._flusher.release(log)
        if marked:
            self._flusher.ring()

    def _rarely(self, monotonic: int) -> None:
        for log in self._logs.values():
            log.check_files()
            if log.writer is None and not log.broken:
                log.open(monotonic)
                if log.failure is None:
                    self._flusher.return_credit(log)
            self._retention.enforce(log)
        self._retention.count()

    def _watch_overload(self, log: StreamWriter, monotonic: int) -> None:
        """Slow down the producers of a stream that no query keeps up with, if others are more important."""
        if log.writer is None:
            return
        name, overload = log.spec.name, log.overload
        costs_others = self._importance.of_stream(name) < self._importance.highest
        read = self._readers.read_position(name) if costs_others else None
        before = overload.active
        overload.observe(monotonic, log.writer.end, read, log.rows_of(self._credit))
        if before and not overload.active:
            self._flusher.return_credit(log)

    def _mark_idle(self, log: StreamWriter, arrival: int, monotonic: int) -> bool:
        """Mark producers idle that were silent for too long; producers with queued frames are not silent."""
        timeout = log.spec.idle_timeout
        if timeout is None or log.spec.event_time is None:
            return False
        due = monotonic - timeout * 1000
        silent: list[int] = []
        if log.recovered and log.opened <= due:
            silent += [number for number in log.recovered if number not in log.alive]
            log.recovered = ()
        for number, heard in log.alive.items():
            if heard > due:
                break
            silent.append(number)
        marked = False
        for number in silent:
            log.alive.pop(number, None)
            if number in log.waiting:
                log.alive[number] = monotonic
            elif log.writer is not None:
                marked |= log.mark(FrameKind.IDLE, arrival, number)
        return marked
