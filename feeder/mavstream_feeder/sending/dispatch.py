"""Dispatch: which rows are sent at which moment, singly or in a send group. No I/O, and no clock.

Due times are known ahead, so frames are made before their moment. Streams are in the schedule, a heap of next
due times (thesis, 4.4.2: there a list is sorted again and again), or in a send group.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mavstream_feeder.pacing.arrivals import Times
from mavstream_feeder.pacing.lags import Lags
from mavstream_feeder.pacing.schedule import Schedule
from mavstream_feeder.sending.feeds import Feed, Options
from mavstream_feeder.sending.outbox import Outbox
from mavstream_feeder.sending.send_groups import SendGroup
from mavstream_protocol import Schema

# Seconds ahead of a moment in which no work for later ones is begun.
_RESERVE = 0.0002


class Dispatcher:
    """Puts due rows into the outbox. Times are seconds on the feeder's clock."""

    def __init__(self, options: Options, outbox: Outbox, lags: Lags) -> None:
        self.epoch_us = 0
        """When the feeder's clock began, in microseconds since 1970."""
        self._options = options
        self._outbox = outbox
        self._lags = lags
        self._schedule = Schedule(options.seed)
        self._feeds: dict[str, Feed] = {}
        self._schemas: dict[Schema, int] = {}
        self._groups: dict[int, SendGroup] = {}

    def __bool__(self) -> bool:
        """Whether rows are yet to fall due."""
        return bool(self._schedule)

    def add(self, feed: Feed) -> None:
        """Take over a feed, which starts with the next `begin`."""
        self._feeds[feed.name] = feed
        feed.schema = self._schemas.setdefault(feed.source.spec.schema(), len(self._schemas))
        if feed.groupable:
            if feed.schema not in self._groups:
                self._groups[feed.schema] = SendGroup(
                    self._schedule, self._outbox, self._instants, self._update, self._options
                )
            self._groups[feed.schema].feeds.append(feed)

    def begin(self, now: Callable[[], float]) -> None:
        """Start the feeds that were added since the last call. Raises UnreadableFile."""
        joining = [feed for feed in self._feeds.values() if not feed.scheduled]
        for feed in joining:
            # Before the clock is read: opening files takes time.
            feed.over = not feed.source.opened()
        # Streams that join together start together, or recorded ones would be shifted against each other.
        start = now()
        for feed in joining:
            feed.scheduled = True
            if not feed.over:
                self._schedule.join(feed.name, feed.arrivals(start, self._options.seed))

    def waits(self, feed: str) -> bool:
        """Whether a feed waits until its streams may send."""
        return self._schedule.held(feed)

    def next_moment(self, last: float) -> float | None:
        """Return when to send again, which may be past; None if nothing is due before a feed is released."""
        moment = min((group.next_due() for group in self._groups.values()), default=math.inf)
        next_due = self._schedule.next_due()
        if next_due is not None:
            # What falls due soon after the last moment lingers, to share a message. A stream that is fed as
            # fast as possible does not, and neither does a send group, whose rows share one already.
            earliest = last if math.isinf(next_due) else last + self._options.linger
            moment = min(moment, max(next_due, earliest))
        return None if moment == math.inf else moment

    def send_due(self, moment: float) -> None:
        """Put the rows that are due by a moment into the outbox."""
        for group in self._groups.values():
            group.send(moment)
        due = self._schedule.take(moment, self._options.frame_rows)
        for name, times in due:
            self._send(self._feeds[name], times)
        self._outbox.flush()
        for name, _ in due:
            self._update(self._feeds[name])

    def prepare(self, moment: float, now: Callable[[], float]) -> None:
        """Use the time that is left before a moment to plan what falls due later.

        One step is done in any case: when time is short now, it is short later too.
        """
        if not self._outbox.multi_stream or not self._options.linger:
            return
        for group in self._groups.values():
            while group.prepare(moment) and moment - now() > _RESERVE:
                pass

    def disband(self) -> None:
        """Send streams singly until new plans are made: there is another connection."""
        for group in self._groups.values():
            group.disband()

    def release(self) -> bool:
        """Release the feeds that waited and may send again; whether there were any."""
        released = [name for name in self._schedule.all_held() if self._feeds[name].open]
        for name in released:
            self._schedule.release(name)
        return bool(released)

    def _send(self, feed: Feed, times: Times) -> None:
        rows = feed.source.take(self._instants(times))
        if rows is None:
            return
        for window, part, due, source_row in feed.parts(rows, times[: rows.num_rows]):
            self._lags.leaving(feed.lag_numbers[window.stream], due)
            self._outbox.add(window, part, source_row, feed.schema)

    def _update(self, feed: Feed) -> None:
        """Remove a feed without rows from the schedule; hold one that may not send for now."""
        if feed.source.over:
            feed.over = True
            if feed.name in self._schedule:
                self._schedule.remove(feed.name)
        elif not feed.open:
            self._schedule.hold(feed.name)

    def _instants(self, times: Times) -> NDArray[np.int64]:
        """Return due times in microseconds since 1970."""
        return self.epoch_us + (times * 1e6).astype(np.int64)
