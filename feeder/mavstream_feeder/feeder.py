"""The feeder: one task, one websocket, many streams.

It sleeps until the next tuple of any stream falls due, takes what is due by then and sends a frame per
stream. A stream without credit waits, its arrivals with it, while the others go on. When the connection
breaks, the feeder connects again and sends what was not acked once more under the same numbers.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time

import numpy as np
import pyarrow as pa
from websockets.exceptions import ConnectionClosed

from mavstream_feeder.arrivals import Times
from mavstream_feeder.feeds import Feed, Options
from mavstream_feeder.frames import make_frame
from mavstream_feeder.lags import Lags
from mavstream_feeder.lane import Lane
from mavstream_feeder.link import Address, Link, Patience
from mavstream_feeder.problems import RowsRefused
from mavstream_feeder.rates import Rate
from mavstream_feeder.reports import Report, milliseconds
from mavstream_feeder.schedule import Schedule
from mavstream_feeder.sources import FileSource
from mavstream_protocol.wire.feed import Ack, End, Ended, Reject

# What is refused with these passes: too many, not ready, storage full. A gap follows from such a refusal.
_PASSING = frozenset({429, 503, 507})
_GAP = "sequence_gap"
_TRY_AGAIN = 0.25


class Feeder:
    """Feeds streams from files at Poisson rates."""

    def __init__(
        self, address: Address, options: Options | None = None, patience: Patience | None = None
    ) -> None:
        self._options = options or Options()
        self.producer = self._options.producer or f"feeder_{secrets.token_hex(4)}"
        self._link = Link(address, self.producer, patience or Patience())
        self._schedule = Schedule(self._options.seed)
        self._feeds: dict[str, Feed] = {}
        self._frames = 0
        self._stopping = False
        self._joined = False
        self._settling = False
        self._news = asyncio.Event()
        self._started = time.monotonic()
        self._epoch_us = 0
        self._ended_at: float | None = None

    def add(self, stream: str, source: FileSource, rate: Rate) -> None:
        """Let a stream join, now or while the feeder runs."""
        if stream in self._feeds:
            raise ValueError(f"stream '{stream}' is fed already: give each stream one file")
        self._feeds[stream] = Feed(stream, source, rate)
        # Only a hello tells number and credit of a stream, so a running feeder says it again.
        self._joined = True
        self._news.set()

    def stop(self) -> None:
        """Send nothing new; wait for acks, then `run` returns."""
        self._stopping = True
        self._news.set()

    async def run(self, seconds: float | None = None) -> Report:
        """Feed until the rows, the rates or the seconds are over and all is acked. Raises FeederError."""
        self._started = time.monotonic()
        self._epoch_us = time.time_ns() // 1000
        timer = None
        if seconds is not None:
            timer = asyncio.get_running_loop().call_later(seconds, self.stop)
        try:
            while not self._finished():
                await self._session()
        finally:
            if timer is not None:
                timer.cancel()
            await self._link.close()
            self._ended_at = self._now()
        return self.report()

    def report(self) -> Report:
        """Return what was done so far."""
        total = Lags()
        streams = {}
        for name, feed in self._feeds.items():
            total.add(feed.lags)
            streams[name] = feed.report(waiting=self._schedule.held(name))
        return Report(
            seconds=self._now() if self._ended_at is None else self._ended_at,
            sent=sum(each.sent for each in streams.values()),
            acked=sum(each.acked for each in streams.values()),
            frames=self._frames,
            reconnects=self._link.reconnects,
            lag_p50_ms=milliseconds(total.quantile(0.5)),
            lag_p99_ms=milliseconds(total.quantile(0.99)),
            streams=streams,
        )

    async def _session(self) -> None:
        """Feed over one connection, until all is done, a stream joins or the connection breaks."""
        self._joined = self._settling = False
        welcome = await self._link.open(tuple(self._feeds))
        for name, feed in self._feeds.items():
            standing = welcome.streams[name]
            feed.lane.welcomed(standing.last_sequence, standing.credit)
            if not feed.scheduled:
                feed.scheduled = True
                self._schedule.add(name, feed.rate, self._now())
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
            now = self._now()
            await self._resend()
            for due in self._schedule.take(now, self._options.frame_rows):
                await self._send(due.stream, due.times)
            if not self._schedule:
                return
            next_due = self._schedule.next_due()
            await self._sleep(None if next_due is None else self._wake_up(next_due, last))
            last = self._now()

    def _wake_up(self, next_due: float, last: float) -> float:
        # What falls due soon after the last wake-up waits a little for company; a stream that is fed as
        # fast as it is taken does not wait.
        return next_due if math.isinf(next_due) else max(next_due, last + self._options.linger)

    async def _settle(self, listener: asyncio.Task[None]) -> None:
        """Wait until all that was made is acked and, at the end of the feed, until ends are confirmed."""
        self._settling = True
        ending: set[str] = set()
        while not self._joined:
            self._news.clear()
            if listener.done():
                await listener
            await self._resend()
            if self._finished():
                return
            if self._options.end:
                for name, feed in self._feeds.items():
                    if feed.lane.settled and not feed.lane.ended and name not in ending:
                        ending.add(name)
                        await self._link.send(End(stream=name).model_dump_json())
            await self._news.wait()

    async def _sleep(self, until: float | None) -> None:
        """Wait for a time or for news, whichever comes first; let acks in at any rate."""
        delay = None if until is None else until - self._now()
        if delay is not None and delay <= 0:
            await asyncio.sleep(0)
            return
        timer = None if delay is None else asyncio.get_running_loop().call_later(delay, self._news.set)
        await self._news.wait()
        if timer is not None:
            timer.cancel()

    async def _send(self, stream: str, times: Times) -> None:
        feed = self._feeds[stream]
        rows = feed.source.take(self._epoch_us + (times * 1e6).astype(np.int64))
        if rows is not None:
            await self._send_rows(feed, rows)
            feed.lags.record(self._now() - times[: rows.num_rows])
        if feed.source.over:
            if stream in self._schedule:
                self._schedule.remove(stream)
        elif not feed.lane.open:
            self._schedule.hold(stream)

    async def _send_rows(self, feed: Feed, rows: pa.RecordBatch) -> None:
        frame = make_frame(feed.lane.stream, feed.lane.next_sequence, rows, self._options.format)
        if frame.size > self._link.max_frame_bytes and rows.num_rows > 1:
            half = rows.num_rows // 2
            await self._send_rows(feed, rows.slice(0, half))
            await self._send_rows(feed, rows.slice(half))
            return
        feed.lane.made(frame)
        await self._push(feed.lane)

    async def _resend(self) -> None:
        for feed in self._feeds.values():
            await self._push(feed.lane)

    async def _push(self, lane: Lane) -> None:
        while (frame := lane.next_frame()) is not None:
            self._frames += 1
            await self._link.send(frame.message)

    async def _listen(self) -> None:
        """Take in acks, refusals and confirmed ends."""
        while True:
            message = await self._link.receive()
            lane = self._feeds[message.stream].lane
            match message:
                case Ack():
                    lane.acked(message.sequence, message.credit)
                    self._release(message.stream, lane)
                    if lane.waiting or self._settling:
                        self._news.set()
                case Reject():
                    self._refused(lane, message)
                case Ended():
                    lane.ended = True
                    self._news.set()

    def _refused(self, lane: Lane, refusal: Reject) -> None:
        problem = refusal.problem
        if problem.status not in _PASSING and problem.code != _GAP:
            raise RowsRefused(lane.stream, problem)
        lane.again_from(refusal.expected)

    async def _retry(self) -> None:
        """Try streams without credit once in a while: a server with room again need not tell."""
        while True:
            await asyncio.sleep(_TRY_AGAIN)
            for name, feed in self._feeds.items():
                if feed.lane.try_again():
                    self._release(name, feed.lane)
                    self._news.set()

    def _release(self, stream: str, lane: Lane) -> None:
        if self._schedule.held(stream) and lane.open:
            self._schedule.release(stream)
            self._news.set()

    def _finished(self) -> bool:
        if self._joined or (self._schedule and not self._stopping):
            return False
        return all(
            feed.lane.settled and (feed.lane.ended or not self._options.end) for feed in self._feeds.values()
        )

    def _now(self) -> float:
        return time.monotonic() - self._started
