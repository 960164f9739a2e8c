"""What happens to streams by the passing of time: clock and idle marks, retention, room for who waits."""

from __future__ import annotations

from collections.abc import Mapping

from mavstream_server.core.clock import Clock
from mavstream_server.ingest.flusher import Flusher
from mavstream_server.ingest.retention import StreamRetention
from mavstream_server.ingest.stream_writer import StreamWriter
from mavstream_server.log import FrameKind

PERIOD = 100_000_000
"""How often housekeeping is meant to be done, and how often a busy stream's time is marked. Nanoseconds."""
_SLACK = PERIOD // 10  # timers are not exact; a mark should not wait another round for that
_RAREST_MARK = 10 * PERIOD
_SLOW_PERIOD = 10 * PERIOD


class StreamMaintenance:
    """Does the periodic work of all streams.

    Windows on arrival time close by clock marks, so streams that such windows read are marked even if they
    are silent: another input of the same query may wait for them. A stream that gets rows needs no mark,
    they tell the time. When no stream at all gets rows, marks grow rarer, up to one per second, so that a
    window closes late by 1 % of the silence at most. A mark takes 128 bytes: 1.3 kB/s per stream while
    others are busy, 11 MB a day when nothing happens.
    """

    def __init__(
        self, logs: Mapping[str, StreamWriter], appender: Flusher, keeper: StreamRetention, clock: Clock
    ) -> None:
        self._logs = logs
        self._appender = appender
        self._keeper = keeper
        self._clock = clock
        self._slow_since = clock.monotonic()

    def run(self, now: int | None = None) -> None:
        """Do what is due; to be called about every PERIOD."""
        arrival = self._clock.now() if now is None else now
        monotonic = self._clock.monotonic()
        interval = min(max(PERIOD, (monotonic - self._appender.last_rows) // 100), _RAREST_MARK) - _SLACK
        marked = False
        for log in self._logs.values():
            if log.writer is None or log.syncing or log.completed:
                continue
            if log.clocked and arrival - log.writer.last_arrival >= interval:
                marked |= log.mark(FrameKind.CLOCK, arrival)
            if log.alive or log.recovered:
                marked |= self._mark_idle(log, arrival, monotonic)
        if monotonic - self._slow_since >= _SLOW_PERIOD:
            self._slow_since = monotonic
            self._rarely(monotonic)
        for log in list(self._logs.values()):
            if log.held is not None:
                self._appender.release(log)
        if marked:
            self._appender.news()

    def _rarely(self, monotonic: int) -> None:
        for log in self._logs.values():
            if log.writer is None and not log.broken:
                log.open(monotonic)
                if log.failure is None:
                    self._appender.credit_returned(log.spec.name)
            self._keeper.keep_promise(log)
        self._keeper.count()

    def _mark_idle(self, log: StreamWriter, arrival: int, monotonic: int) -> bool:
        """Let producers go that were silent for too long; those whose frames wait here are not silent."""
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
