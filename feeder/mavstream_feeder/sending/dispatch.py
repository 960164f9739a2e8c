"""Dispatch: which rows leave at which moment, by themselves or in a convoy. No I/O, and no clock.

Due times are known ahead, so frames are made before their moment comes. Streams are in the schedule, a heap
of next due times (thesis, 4.4.2: there the list is sorted again and again), or travel in a convoy.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mavstream_feeder.pacing.arrivals import Times
from mavstream_feeder.pacing.lags import Lags
from mavstream_feeder.pacing.schedule import Schedule
from mavstream_feeder.sending.convoys import Convoy
from mavstream_feeder.sending.feeds import Feed, Options
from mavstream_feeder.sending.outbox import Outbox
from mavstream_protocol import Schema

# Seconds ahead of a moment in which nothing is begun that is for later ones.
_SPARE = 0.0002


class Dispatcher:
    """Puts what falls due into the outbox. Times are seconds on the feeder's clock."""

    def __init__(self, options: Options, outbox: Outbox, lags: Lags) -> None:
        self.epoch_us = 0
        """When the feeder's clock began, in microseconds since 1970."""
        self._options = options
        self._outbox = outbox
        self._lags = lags
        self._schedule = Schedule(options.seed)
        self._feeds: dict[str, Feed] = {}
        self._kinds: dict[Schema, int] = {}
        self._convoys: dict[int, Convoy] = {}

    def __bool__(self) -> bool:
        """Whether rows are yet to fall due."""
        return bool(self._schedule)

    def add(self, feed: Feed) -> None:
        """Take a feed over, which begins with the next `begin`."""
        self._feeds[feed.name] = feed
        feed.kind = self._kinds.setdefault(feed.source.spec.schema(), len(self._kinds))
        if feed.sociable:
            if feed.kind not in self._convoys:
                self._convoys[feed.kind] = Convoy(
                    self._schedule, self._outbox, self._instants, self._look_after, self._options
                )
            self._convoys[feed.kind].feeds.append(feed)

    def begin(self, now: Callable[[], float]) -> None:
        """Let the feeds begin that were added since. Raises UnreadableFile."""
        joining = [feed for feed in self._feeds.values() if not feed.scheduled]
        for feed in joining:
            # Here, or opening files would cost the first tuples their time.
            feed.over = not feed.source.opened()
        # Streams that join together have one beginning, or recorded ones would be apart.
        start = now()
        for feed in joining:
            feed.scheduled = True
            if not feed.over:
                self._schedule.join(feed.name, feed.arrivals(start, self._options.seed))

    def waits(self, feed: str) -> bool:
        """Whether a feed waits until its streams may send."""
        return self._schedule.held(feed)

    def next_moment(self, last: float) -> float | None:
        """Return when to send again, which may be past; None if nothing is due before one is released."""
        moment = min((convoy.next_due() for convoy in self._convoys.values()), default=math.inf)
        next_due = self._schedule.next_due()
        if next_due is not None:
            # What falls due soon after the last moment waits a little for company; a stream that is fed as
            # fast as it is taken does not wait, and neither does a convoy, which is company already.
            wait = last if math.isinf(next_due) else last + self._options.linger
            moment = min(moment, max(next_due, wait))
        return None if moment == math.inf else moment

    def make_due(self, moment: float) -> None:
        """Make frames of the rows that fall due by a moment, for the next write."""
        for convoy in self._convoys.values():
            convoy.send(moment)
        due = self._schedule.take(moment, self._options.frame_rows)
        for name, times in due:
            self._make(self._feeds[name], times)
        self._outbox.close()
        for name, _ in due:
            self._look_after(self._feeds[name])

    def prepare(self, moment: float, now: Callable[[], float]) -> None:
        """Use the time that is left before a moment for what falls due later.

        Something is done in any case: when time is short, it is short later too.
        """
        if not self._outbox.bundles or not self._options.linger:
            return
        for convoy in self._convoys.values():
            while convoy.prepare(moment) and moment - now() > _SPARE:
                pass

    def disband(self) -> None:
        """Let streams go by themselves until rows are laid out anew: there is another connection."""
        for convoy in self._convoys.values():
            convoy.disband()

    def release(self) -> bool:
        """Let those go on that waited and may send again; whether there were any."""
        released = [name for name in self._schedule.all_held() if self._feeds[name].open]
        for name in released:
            self._schedule.release(name)
        return bool(released)

    def _make(self, feed: Feed, times: Times) -> None:
        rows = feed.source.take(self._instants(times))
        if rows is None:
            return
        for lane, part, due, place in feed.parts(rows, times[: rows.num_rows]):
            self._lags.leaving(feed.numbers[lane.stream], due)
            self._outbox.add(lane, part, place, feed.kind)

    def _look_after(self, feed: Feed) -> None:
        """Take a feed out of the schedule that has no more rows, or may not go on for now."""
        if feed.source.over:
            feed.over = True
            if feed.name in self._schedule:
                self._schedule.remove(feed.name)
        elif not feed.open:
            self._schedule.hold(feed.name)

    def _instants(self, times: Times) -> NDArray[np.int64]:
        """Return due times in microseconds since 1970."""
        return self.epoch_us + (times * 1e6).astype(np.int64)
