"""The feeder: one task, one websocket, many streams.

It waits until the next tuple of any stream falls due and sends what is due by then, a frame per stream. A
stream without credit waits, its arrivals with it, while the others go on. When the connection breaks, the
feeder connects again and sends what was not acked once more under the same numbers.
"""

from __future__ import annotations

import asyncio
import secrets
import time

from websockets.exceptions import ConnectionClosed

from mavstream_feeder.input.sources import FileSource
from mavstream_feeder.input.splitting import Splitter
from mavstream_feeder.pacing.lags import Lags
from mavstream_feeder.pacing.punctuality import NEAR, undisturbed, until
from mavstream_feeder.pacing.rates import AnyRate
from mavstream_feeder.reports import Report, Stopped, StreamReport, milliseconds
from mavstream_feeder.sending.dispatch import Dispatcher
from mavstream_feeder.sending.feeds import Feed, Options
from mavstream_feeder.sending.inbox import Inbox
from mavstream_feeder.sending.lane import Lane
from mavstream_feeder.sending.link import Address, Link, Patience
from mavstream_feeder.sending.outbox import Outbox
from mavstream_protocol.wire.feed import End, Format

_TRY_AGAIN = 0.25


class Feeder:
    """Feeds streams from files, at Poisson rates or as it was recorded."""

    def __init__(
        self, address: Address, options: Options | None = None, patience: Patience | None = None
    ) -> None:
        self._options = options or Options()
        self.producer = self._options.producer or f"feeder_{secrets.token_hex(4)}"
        self._link = Link(address, self.producer, patience or Patience())
        self._feeds: dict[str, Feed] = {}
        self._lanes: dict[str, Lane] = {}
        self._lags = Lags()
        self._outbox = Outbox(self._link, self._options.format, self._lags)
        self._inbox = Inbox(self._link, self._lanes, self._options)
        self._dispatcher = Dispatcher(self._options, self._outbox, self._lags)
        self._stopping = False
        self._joined = False
        self._settling = False
        self._news = asyncio.Event()
        self._started = time.monotonic()
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
        self._dispatcher.add(feed)
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
        self._dispatcher.epoch_us = time.time_ns() // 1000
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
            streams |= feed.reports(waiting=self._dispatcher.waits(name))
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
        self._dispatcher.disband()
        # A feeder of one stream has nothing to bundle and hears its acks at once.
        bundles = len(self._lanes) > 1 and self._options.format is Format.ARROW
        welcome = await self._link.open(tuple(self._lanes), bundles=bundles)
        for name, lane in self._lanes.items():
            lane.welcomed(welcome.streams[name].last_sequence, welcome.streams[name].credit)
        # What was held for want of acks may find them all in the welcome: no further one would release it.
        self._release()
        self._dispatcher.begin(self._now)
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
        while self._dispatcher and not self._stopping and not self._joined:
            self._news.clear()
            if listener.done():
                await listener
            self._outbox.resend(self._lanes.values())
            await self._outbox.write(self._now)
            moment = self._dispatcher.next_moment(last)
            if moment is None or moment - self._now() > NEAR:
                await self._sleep(None if moment is None else moment - NEAR)
                continue
            moment = max(moment, self._now())
            self._dispatcher.make_due(moment)
            self._dispatcher.prepare(moment, self._now)
            await until(self._started + moment)
            await self._outbox.write(self._now)
            last = moment

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
        if self._dispatcher.release():
            self._news.set()

    def _finished(self) -> bool:
        if self._joined or (self._dispatcher and not self._stopping):
            return False
        return all(lane.settled and (lane.ended or not self._options.end) for lane in self._lanes.values())

    def _now(self) -> float:
        return time.monotonic() - self._started
