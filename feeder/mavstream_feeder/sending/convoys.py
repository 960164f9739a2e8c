"""Convoys: feeds with the same fields whose rows travel together, prepared before they fall due.

One stream by itself costs the feeder some forty microseconds a frame, most of them for calls that would do
the same for many rows. So the rows of the next milliseconds are laid out ahead (`portions`), a few streams
at a time while the feeder waits for its moments. Rows of a stream that may not send are put off until it
may. A stream that is behind leaves the convoy and goes by itself, and so do all when the convoy comes late:
nothing needs to be given back, because rows and due times are taken when they are sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator

import numpy as np
from numpy.typing import NDArray

from mavstream_feeder.pacing.arrivals import Times
from mavstream_feeder.pacing.schedule import Schedule
from mavstream_feeder.sending.bundles import MOST_ROWS
from mavstream_feeder.sending.feeds import Feed, Options
from mavstream_feeder.sending.outbox import Outbox
from mavstream_feeder.sending.portions import Load, Member, Portion, laid_out

# Slots of a portion, at least; with two for each stream, laying it out costs the same at any number.
_SLOTS = 64
_MOST_SLOTS = 4096
# Rows of a feed in a portion.
_MOST = 1024
# Rows in a slot from which on it is worth the while; with less, streams go by themselves so many seconds.
_WORTH = 2.5
_PAUSE = 0.25
# Feeds that are looked at in one step: no more than a tenth of a millisecond.
_STEP = 4


class Convoy:
    """Feeds that travel together as far as they can; the schedule has those that do not."""

    def __init__(
        self,
        schedule: Schedule,
        outbox: Outbox,
        instants: Callable[[Times], NDArray[np.int64]],
        left: Callable[[Feed], None],
        options: Options,
    ) -> None:
        self.feeds: list[Feed] = []
        """All that may travel in it, now and then."""
        self._schedule = schedule
        self._outbox = outbox
        self._instants = instants
        self._left = left
        self._slot = options.linger
        self._most_rows = min(options.frame_rows, MOST_ROWS)
        self._travelling: dict[str, Feed] = {}
        self._portion: Portion | None = None
        self._next: Portion | None = None
        self._packing: Iterator[None] | None = None
        self._pause_until = -math.inf

    def next_due(self) -> float:
        """Return when to send or to go on to the next portion; infinity if nobody travels."""
        return math.inf if self._portion is None else self._portion.next_due()

    def send(self, moment: float) -> None:
        """Put into the outbox what is due; what cannot travel together is left to the schedule."""
        while (portion := self._portion) is not None:
            self._send(portion, moment)
            if moment < portion.until:
                return
            self._go_on(moment)

    def prepare(self, now: float) -> bool:
        """Do a step of what is to be ready when the present portion is over; whether there are more."""
        if self._packing is None:
            if self._next is not None or now < self._pause_until or len(self.feeds) < 2:
                return False
            self._packing = self._pack(now)
        for _ in self._packing:
            # Before there is a first portion, it is packed at once, or it would be over when it is ready.
            if self._portion is not None:
                return True
        self._packing = None
        if self._portion is None and self._next is not None:
            self._begin(self._next)
        return False

    def disband(self) -> None:
        """Let each feed go by itself again, and what was prepared be."""
        self._portion = self._next = self._packing = None
        self._part(self._travelling.copy())

    def _send(self, portion: Portion, moment: float) -> None:
        load = portion.due(moment)
        if load is not None and (behind := [n for n, count in load.counts if count > self._most_rows]):
            members = portion.members
            portion.forget([math.inf if n in behind else -math.inf for n in range(len(members))])
            self._part([members[member].feed.name for member in behind])
            load = portion.due(moment)
        if load is None:
            return
        if shut := [member for member, _ in load.counts if not portion.members[member].lane.open]:
            load = portion.put_off(load, shut)
        if not load.counts or self._bundle(portion, load):
            portion.sent(load)
        else:
            self.disband()
            self._pause_until = moment + _PAUSE

    def _bundle(self, portion: Portion, load: Load) -> bool:
        leaving = [(portion.members[member], count) for member, count in load.counts]
        pieces = [(each.lane, count, each.feed.source.taken) for each, count in leaving]
        if not self._outbox.bundle(portion.batch(load), pieces, *portion.dues(load)):
            return False
        for each, count in leaving:
            each.arrivals.advance(count)
            each.feed.source.advance(count)
        return True

    def _go_on(self, moment: float) -> None:
        """Begin with the next portion, if there is one."""
        while self._packing is not None:
            self.prepare(moment)
        if self._next is not None:
            self._begin(self._next)
        else:
            self.disband()

    def _begin(self, portion: Portion) -> None:
        """Let those travel that can, behind what they sent by themselves since it was laid out."""
        if self._portion is not None:
            portion.carry_on(self._portion)
        firsts = [
            math.inf
            if each.feed.source.taken + put_off < each.first or each.lane.starved or self._absent(each.feed)
            else each.feed.source.taken - each.first
            for each, put_off in zip(portion.members, portion.put_off_counts(), strict=True)
        ]
        coming = {
            each.feed.name: each.feed
            for each, first in zip(portion.members, firsts, strict=True)
            if first < math.inf
        }
        if 2 * len(coming) < len(firsts):
            # Most catch up by themselves first; another portion is for all.
            self.disband()
            return
        if any(first > 0 for first in firsts):
            portion.forget(firsts)
        self._portion, self._next = portion, None
        self._part([name for name in self._travelling if name not in coming])
        for name in coming.keys() - self._travelling.keys():
            self._schedule.lend(name)
        self._travelling = coming

    def _part(self, names: Collection[str]) -> None:
        for name in names:
            self._schedule.give_back(name)
            self._left(self._travelling.pop(name))

    def _absent(self, feed: Feed) -> bool:
        return feed.name not in self._schedule or self._schedule.held(feed.name)

    def _pack(self, now: float) -> Iterator[None]:
        """Lay out the next portion in steps."""
        begin = now if self._portion is None else self._portion.until
        slots = min(max(_SLOTS, 2 * len(self.feeds)), _MOST_SLOTS)
        # Those of all convoys end together, or there would be more moments than one a slot.
        first = math.floor(begin / self._slot) + 1
        ends: Times = self._slot * np.arange(first, first + slots, dtype=np.float64)
        until = float(ends[-1])
        members: list[Member] = []
        for number, feed in enumerate(self.feeds):
            if number % _STEP == _STEP - 1:
                yield
            member = self._member(feed, begin, until)
            if member is None:
                continue
            members.append(member)
            if len(member.times) == _MOST:
                # It has more, so that the portion is shorter.
                until = float(member.times[-1])
        yield
        ends = ends[: ends.searchsorted(until, "right")]
        count = sum(int(each.times.searchsorted(ends[-1], "right")) for each in members) if len(ends) else 0
        if len(members) > 1 and count > _WORTH * len(ends):
            self._next = yield from laid_out(members, ends)
        elif not any(self._schedule.held(feed.name) for feed in self.feeds):
            self._pause_until = begin + _PAUSE

    def _member(self, feed: Feed, since: float, until: float) -> Member | None:
        """Return what a feed sends between two points in time; None if it has nothing or may not."""
        if self._absent(feed):
            return None
        # What is due before is sent by then, or it stays behind when the portion begins.
        arrivals = self._schedule[feed.name]
        ahead = len(arrivals.upcoming(since, _MOST))
        times = arrivals.upcoming(until, ahead + _MOST)[ahead:]
        rows = feed.source.peek(self._instants(times), ahead)
        if rows is None:
            return None
        lane = feed.lanes[feed.name]
        return Member(feed, lane, arrivals, feed.source.taken + ahead, times[: rows.num_rows], rows)
