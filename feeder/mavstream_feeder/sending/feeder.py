"""The feeder: one task, one websocket, many streams.

It waits until the next row of any stream falls due and sends what is due by then, a frame per stream. A
stream without credit waits, and its arrivals with it, while the others go on. When the connection breaks, the
feeder reconnects and sends again what was not acknowledged, under the same sequence numbers.
"""

from __future__ import annotations

import asyncio
import secrets
import time

from websockets.exceptions import ConnectionClosed

from mavstream_feeder.input.sources import FileSource
from mavstream_feeder.input.splitting import Splitter
from mavstream_feeder.pacing.lags import Lags
from mavstream_feeder.pacing.punctuality import NEAR, short_collections, sleep_until
from mavstream_feeder.pacing.rates import AnyRate
from mavstream_feeder.reports import Report, Stopped, StreamReport, milliseconds
from mavstream_feeder.sending.dispatch import Dispatcher
from mavstream_feeder.sending.feeds import Feed, Options
from mavstream_feeder.sending.link import Address, Link, Patience
from mavstream_feeder.sending.outbox import Outbox
from mavstream_feeder.sending.refusals import handle_refusal
from mavstream_protocol.producer import ProducerState
from mavstream_protocol.wire.feed import Format

_PROBE = 0.25
"""Seconds between two probes of streams without credit."""


class Feeder:
    """Feeds streams from files, at Poisson rates or as recorded."""

    def __init__(
        self, address: Address, options: Options | None = None, patience: Patience | None = None
    ) -> None:
        self._options = options or Options()
        self.producer = self._options.producer or f"feeder_{secrets.token_hex(4)}"
        self._state = ProducerState(self.producer, self._options.format)
        self._link = Link(address, self._state, patience or Patience())
        self._feeds: dict[str, Feed] = {}
        self._lags = Lags()
        self._outbox = Outbox(self._state, self._lags)
        self._dispatcher = Dispatcher(self._options, self._outbox, self._lags)
        self._stopping = False
        self._joined = False
        self._settling = False
        self._news = asyncio.Event()
        self._started = time.monotonic()
        self._ended_at: float | None = None
        self._stopped: Stopped | None = None

    def add(self, stream: str, source: FileSource, rate: AnyRate) -> None:
        """Add a stream, before the feeder runs or while it does."""
        self._add(Feed(stream, source, rate, lags=self._lags))

    def add_split(self, name: str, source: FileSource, rate: AnyRate, splitter: Splitter) -> None:
        """Add a source whose rows go to several streams; `name` is its own."""
        self._add(Feed(name, source, rate, splitter, self._lags))

    def _add(self, feed: Feed) -> None:
        for stream in feed.windows:
            if stream in self._state.windows:
                raise ValueError(f"stream '{stream}' is fed already: give each stream one file")
        if feed.name in self._feeds:
            raise ValueError(f"'{feed.name}' is the name of another file that is fed: rename one of them")
        self._feeds[feed.name] = feed
        self._state.windows |= feed.windows
        self._dispatcher.add(feed)
        # Only a welcome tells a stream's last sequence number and credit, so a running feeder reconnects.
        self._joined = True
        self._news.set()

    def stop(self, reason: Stopped = Stopped.ASKED) -> None:
        """Send no new rows; `run` returns when all that was sent is acknowledged."""
        if not self._stopping:
            self._stopping = True
            self._stopped = reason
        self._news.set()

    async def run(self, seconds: float | None = None) -> Report:
        """Feed until rows, rates or seconds are over and all is acknowledged. Raises FeederError."""
        with short_collections():
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
        """How many rows there are to feed in all; None if not known. Raises UnreadableFile."""
        totals = [feed.source.total for feed in self._feeds.values()]
        return None if None in totals else sum(total or 0 for total in totals)

    @property
    def taken(self) -> int:
        """How many of them were taken because they fell due."""
        return sum(feed.source.taken for feed in self._feeds.values())

    def report(self) -> Report:
        """Return the metrics so far."""
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
            frames=sum(window.frames_sent for window in self._state.windows.values()),
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
        # Messages that were not written are made again from the windows.
        self._outbox.take()
        self._dispatcher.disband()
        # With one stream there is nothing to share a message with, and acknowledgements come at once.
        several = len(self._state.windows) > 1 and self._options.format is Format.ARROW
        self._outbox.multi_stream = await self._link.open(multi_stream=several)
        # The welcome may have acknowledged what a held feed waits for, and no further message would release
        # it.
        self._release()
        self._dispatcher.begin(self._now)
        listener = asyncio.create_task(self._listen())
        listener.add_done_callback(lambda _: self._news.set())
        prober = asyncio.create_task(self._probe())
        try:
            await self._send_until_done(listener)
            await self._settle(listener)
        except ConnectionClosed as closed:
            self._link.lost(closed)
        finally:
            listener.cancel()
            prober.cancel()
            await asyncio.gather(listener, prober, return_exceptions=True)

    async def _send_until_done(self, listener: asyncio.Task[None]) -> None:
        last = self._now()
        while self._dispatcher and not self._stopping and not self._joined:
            self._news.clear()
            if listener.done():
                await listener
            await self._send_waiting()
            moment = self._dispatcher.next_moment(last)
            if moment is None or moment - self._now() > NEAR:
                await self._sleep(None if moment is None else moment - NEAR)
                continue
            moment = max(moment, self._now())
            self._dispatcher.send_due(moment)
            self._dispatcher.prepare(moment, self._now)
            await sleep_until(self._started + moment)
            await self._write()
            last = moment

    async def _settle(self, listener: asyncio.Task[None]) -> None:
        """Wait until all frames are acknowledged and, at the end of the feed, all ends are confirmed."""
        self._settling = True
        while not self._joined:
            self._news.clear()
            if listener.done():
                await listener
            if self._options.end:
                for window in self._state.windows.values():
                    window.end()
            await self._send_waiting()
            if self._finished():
                return
            await self._news.wait()

    async def _send_waiting(self) -> None:
        self._outbox.send_waiting(self._state.windows.values())
        await self._write()

    async def _write(self) -> None:
        """Send what is in the outbox. Raises ConnectionClosed."""
        if messages := self._outbox.take():
            await self._link.send_all(messages)
            self._lags.sent(self._now())

    async def _sleep(self, until: float | None) -> None:
        """Wait for a point in time or for news, whichever is first."""
        delay = None if until is None else until - self._now()
        timer = None if delay is None else asyncio.get_running_loop().call_later(delay, self._news.set)
        await self._news.wait()
        if timer is not None:
            timer.cancel()

    async def _listen(self) -> None:
        while True:
            received = await self._link.receive()
            if received.refusal is not None:
                handle_refusal(received.refusal, self._options)
            self._release()
            if received.sendable or self._settling:
                self._news.set()

    async def _probe(self) -> None:
        """Probe streams without credit from time to time: a server with room again need not tell."""
        while True:
            await asyncio.sleep(_PROBE)
            for window in self._state.windows.values():
                if window.probe():
                    self._release()
                    self._news.set()

    def _release(self) -> None:
        if self._dispatcher.release():
            self._news.set()

    def _finished(self) -> bool:
        if self._joined or (self._dispatcher and not self._stopping):
            return False
        windows = self._state.windows.values()
        return all(window.settled and (window.ended or not self._options.end) for window in windows)

    def _now(self) -> float:
        return time.monotonic() - self._started
