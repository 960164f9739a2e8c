"""Send groups: feeds with the same fields whose rows share messages, planned before they fall due.

A stream by itself costs the feeder some forty microseconds a frame, most of them for calls that would do the
same for many rows. So the rows of the next milliseconds are planned ahead (`send_plan`), a few streams at a
time while the feeder waits. Rows of a stream that may not send are deferred until it may. A stream that falls
behind leaves the group and is sent singly, and so are all when the group is late. Nothing needs to be given
back then, because rows and due times are taken only when they are sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator

import numpy as np
from numpy.typing import NDArray

from mavstream_feeder.pacing.arrivals import Times
from mavstream_feeder.pacing.schedule import Schedule
from mavstream_feeder.sending.feeds import Feed, Options
from mavstream_feeder.sending.outbox import MAX_SHARED_ROWS, Outbox
from mavstream_feeder.sending.send_plan import DueRows, Member, SendPlan, make_plan

# Ticks of a plan, at least; with two for each stream, planning costs the same per stream at any number of
# them.
_MIN_TICKS = 64
_MAX_TICKS = 4096
# Rows of a feed in a plan, at most.
_MAX_ROWS = 1024
# Rows per tick that make a plan worth its cost; with fewer, streams are sent singly for so many seconds.
_MIN_ROWS_PER_TICK = 2.5
_PAUSE = 0.25
# Feeds that are planned in one step, which takes no more than a tenth of a millisecond.
_FEEDS_PER_STEP = 4


class SendGroup:
    """Feeds that are sent together as far as possible; the schedule has those that are not."""

    def __init__(
        self,
        schedule: Schedule,
        outbox: Outbox,
        instants: Callable[[Times], NDArray[np.int64]],
        on_leave: Callable[[Feed], None],
        options: Options,
    ) -> None:
        self.feeds: list[Feed] = []
        """All feeds that may be sent together; not all are all the time."""
        self._schedule = schedule
        self._outbox = outbox
        self._instants = instants
        self._on_leave = on_leave
        self._tick = options.linger
        self._max_frame_rows = min(options.frame_rows, MAX_SHARED_ROWS)
        self._members: dict[str, Feed] = {}
        self._plan: SendPlan | None = None
        self._next_plan: SendPlan | None = None
        self._planning: Iterator[None] | None = None
        self._pause_until = -math.inf

    def next_due(self) -> float:
        """Return when to send, or to go on to the next plan; infinity without a plan."""
        return math.inf if self._plan is None else self._plan.next_due()

    def send(self, moment: float) -> None:
        """Put what is due into the outbox; what cannot be sent together is left to the schedule."""
        while (plan := self._plan) is not None:
            self._send(plan, moment)
            if moment < plan.until:
                return
            self._go_on(moment)

    def prepare(self, now: float) -> bool:
        """Do a step of the next plan; whether there are more."""
        if self._planning is None:
            if self._next_plan is not None or now < self._pause_until or len(self.feeds) < 2:
                return False
            self._planning = self._make_plan(now)
        for _ in self._planning:
            # The first plan is made at once, or it would be over when it is ready.
            if self._plan is not None:
                return True
        self._planning = None
        if self._plan is None and self._next_plan is not None:
            self._begin(self._next_plan)
        return False

    def disband(self) -> None:
        """Throw plans away and send each feed singly again."""
        self._plan = self._next_plan = self._planning = None
        self._leave(self._members.copy())

    def _send(self, plan: SendPlan, moment: float) -> None:
        due = plan.due(moment)
        if due is not None and (behind := [n for n, count in due.counts if count > self._max_frame_rows]):
            members = plan.members
            plan.remove([math.inf if n in behind else -math.inf for n in range(len(members))])
            self._leave([members[member].feed.name for member in behind])
            due = plan.due(moment)
        if due is None:
            return
        if shut := [member for member, _ in due.counts if not plan.members[member].window.open]:
            due = plan.defer(due, shut)
        if not due.counts or self._send_together(plan, due):
            plan.sent(due)
        else:
            self.disband()
            self._pause_until = moment + _PAUSE

    def _send_together(self, plan: SendPlan, due: DueRows) -> bool:
        leaving = [(plan.members[member], count) for member, count in due.counts]
        parts = [(each.window, count, each.feed.source.taken) for each, count in leaving]
        if not self._outbox.add_group(plan.batch(due), parts, *plan.due_times(due)):
            return False
        for each, count in leaving:
            each.arrivals.advance(count)
            each.feed.source.advance(count)
        return True

    def _go_on(self, moment: float) -> None:
        """Begin with the next plan, if there is one."""
        while self._planning is not None:
            self.prepare(moment)
        if self._next_plan is not None:
            self._begin(self._next_plan)
        else:
            self.disband()

    def _begin(self, plan: SendPlan) -> None:
        """Switch to a plan with the feeds that can follow it, behind what they sent singly meanwhile."""
        if self._plan is not None:
            plan.continue_from(self._plan)
        firsts = [
            math.inf
            if each.feed.source.taken + deferred < each.first
            or each.window.starved
            or self._unavailable(each.feed)
            else each.feed.source.taken - each.first
            for each, deferred in zip(plan.members, plan.deferred_counts(), strict=True)
        ]
        joining = {
            each.feed.name: each.feed
            for each, first in zip(plan.members, firsts, strict=True)
            if first < math.inf
        }
        if 2 * len(joining) < len(firsts):
            # Most have to catch up singly first; then a new plan has them all.
            self.disband()
            return
        if any(first > 0 for first in firsts):
            plan.remove(firsts)
        self._plan, self._next_plan = plan, None
        self._leave([name for name in self._members if name not in joining])
        for name in joining.keys() - self._members.keys():
            self._schedule.lend(name)
        self._members = joining

    def _leave(self, names: Collection[str]) -> None:
        for name in names:
            self._schedule.give_back(name)
            self._on_leave(self._members.pop(name))

    def _unavailable(self, feed: Feed) -> bool:
        return feed.name not in self._schedule or self._schedule.held(feed.name)

    def _make_plan(self, now: float) -> Iterator[None]:
        """Make the next plan in steps."""
        begin = now if self._plan is None else self._plan.until
        count = min(max(_MIN_TICKS, 2 * len(self.feeds)), _MAX_TICKS)
        # Ticks of all groups end together, or there would be more than one moment per tick.
        first = math.floor(begin / self._tick) + 1
        ends: Times = self._tick * np.arange(first, first + count, dtype=np.float64)
        until = float(ends[-1])
        members: list[Member] = []
        for number, feed in enumerate(self.feeds):
            if number % _FEEDS_PER_STEP == _FEEDS_PER_STEP - 1:
                yield
            member = self._member(feed, begin, until)
            if member is None:
                continue
            members.append(member)
            if len(member.times) == _MAX_ROWS:
                # It has more rows, so the plan is shorter.
                until = float(member.times[-1])
        yield
        ends = ends[: ends.searchsorted(until, "right")]
        rows = sum(int(each.times.searchsorted(ends[-1], "right")) for each in members) if len(ends) else 0
        if len(members) > 1 and rows > _MIN_ROWS_PER_TICK * len(ends):
            self._next_plan = yield from make_plan(members, ends)
        elif not any(self._schedule.held(feed.name) for feed in self.feeds):
            self._pause_until = begin + _PAUSE

    def _member(self, feed: Feed, since: float, until: float) -> Member | None:
        """Return what a feed sends between two points in time; None if it has nothing or may not."""
        if self._unavailable(feed):
            return None
        # What is due before is sent by then, or the feed is left out when the plan begins.
        arrivals = self._schedule[feed.name]
        ahead = len(arrivals.upcoming(since, _MAX_ROWS))
        times = arrivals.upcoming(until, ahead + _MAX_ROWS)[ahead:]
        rows = feed.source.peek(self._instants(times), ahead)
        if rows is None:
            return None
        window = feed.windows[feed.name]
        return Member(feed, window, arrivals, feed.source.taken + ahead, times[: rows.num_rows], rows)
