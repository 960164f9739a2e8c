"""The feeder: one task, one websocket, many streams.

It waits until the next tuple of any stream falls due and sends what is due by then, a frame per stream
(thesis, 4.4.2: there the list of next times is sorted again and again, here it is a heap). Due times are
known ahead, so frames are made before their moment comes, and those of streams with the same fields travel
as one message; where rows are many, they are laid out together some milliseconds ahead (`convoys`). A stream
without credit waits, its arrivals with it, while the others go on. When the connection breaks, the feeder
connects again and sends what was not acked once more under the same numbers.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time

import numpy as np
from numpy.typing import NDArray
from websockets.exceptions import ConnectionClosed

from mavstream_feeder.arrivals import Times
from mavstream_feeder.convoys import Convoy
from mavstream_feeder.feeds import Feed, Options
from mavstream_feeder.inbox import Inbox
from mavstream_feeder.lags import Lags
from mavstream_feeder.lane import Lane
from mavstream_feeder.link import Address, Link, Patience
from mavstream_feeder.outbox import Outbox
from mavstream_feeder.punctuality import NEAR, undisturbed, until
from mavstream_feeder.rates import AnyRate
from mavstream_feeder.reports import Report, Stopped, StreamReport, milliseconds
from mavstream_feeder.schedule import Schedule
from mavstream_feeder.sources import FileSource
from mavstream_feeder.splitting import Splitter
from mavstream_protocol import Schema
from mavstream_protocol.wire.feed import End, Format

_TRY_AGAIN = 0.25
# Seconds ahead of a moment that are left to what is prepared for later ones.
_SPARE = 0.0002


class Feeder:
    """Feeds streams from files, at Poisson rates or as it was recorded."""

    def __init__(
        self, address: Address, options: Options | None = None, patience: Patience | None = None
    ) -> None:
        self._options = options or Options()
        self.producer = self._options.producer or f"feeder_{secrets.token_hex(4)}"
        self._link = Link(address, self.producer, patience or Patience())
        self._schedule = Schedule(self._options.seed)
        self._feeds: dict[str, Feed] = {}
        self._lanes: dict[str, Lane] = {}
        self._lags = Lags()
        self._outbox = Outbox(self._link, self._options.format, self._lags)
        self._inbox = Inbox(self._link, self._lanes, self._options)
        self._kinds: dict[Schema, int] = {}
        self._convoys: dict[int, Convoy] = {}
        self._stopping = False
        self._joined = False
        self._settling = False
        self._news = asyncio.Event()
        self._started = time.monotonic()
        self._epoch_us = 0
        self._ended_at: float | None = None
        self._stopped: Stopped | None = None

    def add(self, stream: str, source: FileSource, rate: AnyRate) -> None:
        """Let a stream join, now or while the feeder runs."""
        self._add(Feed(stream, source, rate, lags=self._lags))

    def add_split(self, name: str, source: FileSource, rate: AnyRate, splitter: Splitter) -> None:
        """Let a source join whose rows go to several streams; `name` is its own."""
        self._add(Feed(name, source, rate, splitter, self._lags))

    def _add(self, feed: Feed) -> None:
        for stream in feed.lanes:
            if stream in self._lanes:
                raise ValueError(f"stream '{stream}' is fed already: give each stream one file")
        if feed.name in self._feeds:
            raise ValueError(f"'{feed.name}' is the name of another file that is fed: rename one of them")
        self._feeds[feed.name] = feed
        self._lanes |= feed.lanes
        feed.kind = self._kinds.setdefault(feed.source.spec.schema(), len(self._kinds))
        if feed.sociable:
            self._convoy_of(feed.kind).feeds.append(feed)
        # Only a hello tells number and credit of a stream, so a running feeder says it again.
        self._joined = True
        self._news.set()

    def stop(self, reason: Stopped = Stopped.ASKED) -> None:
        """Send nothing new; wait for acks, then `run` returns."""
        if not self._stopping:
            self._stopping = True
            self._stopped = reason
        self._news.set()

    async def run(self, seconds: float | None = None) -> Report:
        """Feed until the rows, the rates or the seconds are over and all is acked. Raises FeederError."""
        with undisturbed():
            return await self._run(seconds)

    async def _run(self, seconds: float | None) -> Report:
        self._started = time.monotonic()
        self._epoch_us = time.time_ns() // 1000
        timer = None
        if seconds is not None:
            timer = asyncio.get_running_loop().call_later(seconds, self.stop, Stopped.TIME)
        try:
            while not self._finished():
                await self._session()
            self._stopped = self._stopped or Stopped.DONE
        except BaseException:
            self._stopped = Stopped.FAILED
            raise
        finally:
            if timer is not None:
                timer.cancel()
            await self._link.close()
            self._ended_at = self._now()
        return self.report()

    @property
    def total(self) -> int | None:
        """How many rows there are to feed in all; None if nobody knows. Raises UnreadableFile."""
        totals = [feed.source.total for feed in self._feeds.values()]
        return None if None in totals else sum(total or 0 for total in totals)

    @property
    def taken(self) -> int:
        """How many of them have fallen due and were taken."""
        return sum(feed.source.taken for feed in self._feeds.values())

    def report(self) -> Report:
        """Return what was done so far."""
        streams: dict[str, StreamReport] = {}
        for name, feed in self._feeds.items():
            streams |= feed.reports(waiting=self._schedule.held(name))
        return Report(
            seconds=self._now() if self._ended_at is None else self._ended_at,
            sent=sum(each.sent for each in streams.values()),
            acked=sum(each.acked for each in streams.values()),
            rejected=sum(each.rejected for each in streams.values()),
            unmatched={
                feed.source.name: feed.splitter.unmatched
                for feed in self._feeds.values()
                if feed.splitter is not None
            },
            frames=self._outbox.frames,
            reconnects=self._link.reconnects,
            lag_p50_ms=milliseconds(self._lags.quantile(0.5)),
            lag_p99_ms=milliseconds(self._lags.quantile(0.99)),
            lag_max_ms=milliseconds(self._lags.worst()),
            stopped=self._stopped if self._ended_at is not None else None,
            streams=streams,
        )

    async def _session(self) -> None:
        """Feed over one connection, until all is done, a stream joins or the connection breaks."""
        self._joined = self._settling = False
        self._outbox.clear()
        for convoy in self._convoys.values():
            convoy.disband()
        # A feeder of one stream has nothing to bundle and hears its acks at once.
        bundles = len(self._lanes) > 1 and self._options.format is Format.ARROW
        welcome = await self._link.open(tuple(self._lanes), bundles=bundles)
        for name, lane in self._lanes.items():
            lane.welcomed(welcome.streams[name].last_sequence, welcome.streams[name].credit)
        # What was held for want of acks may find them all in the welcome: no further one would release it.
        self._release()
        joining = [feed for feed in self._feeds.values() if not feed.scheduled]
        for feed in joining:
            # Here, or opening files would cost the first tuples their time.
            feed.over = not feed.source.opened()
        # Streams that join together have one beginning, or recorded ones would be apart.
        now = self._now()
        for feed in joining:
            feed.scheduled = True
            if not feed.over:
                self._schedule.join(feed.name, feed.arrivals(now, self._options.seed))
        listener = asyncio.create_task(self._listen())
        listener.add_done_callback(lambda _: self._news.set())
        retry = asyncio.create_task(self._retry())
        try:
            await self._send_until_done(listener)
            await self._settle(listener)
        except ConnectionClosed as closed:
            self._link.lost(closed)
        finally:
            listener.cancel()
            retry.cancel()
            await asyncio.gather(listener, retry, return_exceptions=True)

    async def _send_until_done(self, listener: asyncio.Task[None]) -> None:
        last = self._now()
        while self._schedule and not self._stopping and not self._joined:
            self._news.clear()
            if listener.done():
                await listener
            self._outbox.resend(self._lanes.values())
            await self._outbox.write(self._now)
            moment = self._next_moment(last)
            if moment is None or moment - self._now() > NEAR:
                await self._sleep(None if moment is None else moment - NEAR)
                continue
            self._make_due(moment)
            self._prepare(moment)
            await until(self._started + moment)
            await self._outbox.write(self._now)
            last = moment

    def _next_moment(self, last: float) -> float | None:
        """Return when to send again, which may be now; None if nothing will be due before there is news."""
        moment = min((convoy.next_due() for convoy in self._convoys.values()), default=math.inf)
        next_due = self._schedule.next_due()
        if next_due is not None:
            # What falls due soon after the last moment waits a little for company; a stream that is fed as
            # fast as it is taken does not wait, and neither does a convoy, which is company already.
            wait = last if math.isinf(next_due) else last + self._options.linger
            moment = min(moment, max(next_due, wait))
        return None if moment == math.inf else max(moment, self._now())

    async def _settle(self, listener: asyncio.Task[None]) -> None:
        """Wait until all that was made is acked and, at the end of the feed, until ends are confirmed."""
        self._settling = True
        ending: set[str] = set()
        while not self._joined:
            self._news.clear()
            if listener.done():
                await listener
            self._outbox.resend(self._lanes.values())
            await self._outbox.write(self._now)
            if self._finished():
                return
            if self._options.end:
                for name, lane in self._lanes.items():
                    if lane.settled and not lane.ended and name not in ending:
                        ending.add(name)
                        await self._link.send(End(stream=name).model_dump_json())
            await self._news.wait()

    async def _sleep(self, until: float | None) -> None:
        """Wait for a time or for news, whichever comes first."""
        delay = None if until is None else until - self._now()
        timer = None if delay is None else asyncio.get_running_loop().call_later(delay, self._news.set)
        await self._news.wait()
        if timer is not None:
            timer.cancel()

    def _make_due(self, moment: float) -> None:
        """Make frames of the rows that fall due by a moment, for the next write."""
        for convoy in self._convoys.values():
            convoy.send(moment)
        due = self._schedule.take(moment, self._options.frame_rows)
        for name, times in due:
            self._make(self._feeds[name], times)
        self._outbox.close()
        for name, _ in due:
            self._look_after(self._feeds[name])

    def _make(self, feed: Feed, times: Times) -> None:
        rows = feed.source.take(self._instants(times))
        if rows is None:
            return
        for lane, part, due, place in feed.parts(rows, times[: rows.num_rows]):
            self._lags.leaving(feed.numbers[lane.stream], due)
            self._outbox.add(lane, part, place, feed.kind)

    def _prepare(self, moment: float) -> None:
        """Lay out what falls due later: a step in any case, or it would be late when time is short."""
        if not self._link.bundles or not self._options.linger:
            return
        for convoy in self._convoys.values():
            while convoy.prepare(moment) and moment - self._now() > _SPARE:
                pass

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
        return self._epoch_us + (times * 1e6).astype(np.int64)

    def _convoy_of(self, kind: int) -> Convoy:
        if kind not in self._convoys:
            self._convoys[kind] = Convoy(
                self._schedule, self._outbox, self._instants, self._look_after, self._options
            )
        return self._convoys[kind]

    async def _listen(self) -> None:
        while True:
            waiting = await self._inbox.take_in()
            self._release()
            if waiting or self._settling:
                self._news.set()

    async def _retry(self) -> None:
        """Try streams without credit once in a while: a server with room again need not tell."""
        while True:
            await asyncio.sleep(_TRY_AGAIN)
            for lane in self._lanes.values():
                if lane.try_again():
                    self._release()
                    self._news.set()

    def _release(self) -> None:
        for name in self._schedule.all_held():
            if self._feeds[name].open:
                self._schedule.release(name)
                self._news.set()

    def _finished(self) -> bool:
        if self._joined or (self._schedule and not self._stopping):
            return False
        return all(lane.settled and (lane.ended or not self._options.end) for lane in self._lanes.values())

    def _now(self) -> float:
        return time.monotonic() - self._started
