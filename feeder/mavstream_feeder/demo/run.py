"""Running the demo: a server, the queries, the feeder, and the check at the end."""

from __future__ import annotations

import asyncio
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from mavstream import AsyncClient, Conflict
from mavstream.testing import start_server
from mavstream_feeder.demo.outcome import ClassFigures, Outcome
from mavstream_feeder.demo.view import View
from mavstream_feeder.demo.watch import Watch
from mavstream_feeder.input.sample import STREAMS, sample_file
from mavstream_feeder.input.sources import FileSource
from mavstream_feeder.pacing.rates import Recorded, parse_rates
from mavstream_feeder.reports import Report
from mavstream_feeder.sending.feeder import Feeder
from mavstream_feeder.sending.feeds import Options
from mavstream_feeder.sending.link import Address

_PERIOD = 0.5


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """How the demo runs."""

    seconds: float
    rates: tuple[str, ...]
    seed: int = 0
    policy: str | None = None
    feed: bool = True
    live: bool = True
    """Whether to show anything."""


def run_demo(options: DemoOptions, address: Address | None) -> Outcome:
    """Run the demo on the server at `address`, or on one of its own that ends with it."""
    parse_rates(options.rates, STREAMS)
    view = View(live=options.live)
    with _terminated_like_interrupted():
        if address is not None:
            return asyncio.run(_Demo(options, address, view, own=False).run())
        view.say("starting a server ...")
        with start_server() as url:
            return asyncio.run(_Demo(options, Address(url), view, own=True).run())


class _Demo:
    """One run against one server."""

    def __init__(self, options: DemoOptions, address: Address, view: View, *, own: bool) -> None:
        self._options = options
        self._address = address
        self._view = view
        self._own = own

    async def run(self) -> Outcome:
        """Return what was found."""
        async with AsyncClient(self._address.url, token=self._address.token, timeout=30.0) as client:
            await self._prepare(client)
            before = await self._positions(client)
            watch = Watch(client)
            complaints: list[str] = []
            try:
                self._view.say(f"21 queries in three classes on {self._address.url}")
                await watch.submit("" if self._own else f"demo_{secrets.token_hex(3)}_")
                report, passed = await self._work(watch)
                complaints += await watch.settle() if self._options.feed else []
                classes = await watch.figures()
                after = await self._positions(client)
            finally:
                complaints += await watch.close(remove=not self._own)
        outcome = self._judged(classes, report, after - before, complaints)
        self._view.summary(passed, outcome)
        return outcome

    async def _prepare(self, client: AsyncClient) -> None:
        for spec in STREAMS.values():
            try:
                await client.create_stream(spec)
            except Conflict:
                # There from an earlier run; whether its fields fit shows with the queries.
                await client.stream_info(spec.name)
        if self._options.policy is not None:
            await client.set_scheduler(self._options.policy)

    async def _work(self, watch: Watch) -> tuple[Report, float]:
        """Feed, or wait, for the given time and show what happens; return what was fed, and the time."""
        feeder = Feeder(self._address, Options(seed=self._options.seed))
        seconds = self._options.seconds
        if self._options.feed:
            for name, rate in parse_rates(self._options.rates, STREAMS).items():
                recorded = rate if isinstance(rate, Recorded) else None
                source = FileSource(
                    sample_file(name), STREAMS[name], loop=True, stamp=True, recorded=recorded
                )
                feeder.add(name, source, rate)
            work = asyncio.create_task(feeder.run(seconds))
        else:
            work = asyncio.create_task(asyncio.sleep(seconds, feeder.report()))
        start = time.monotonic()
        self._view.start()
        try:
            while not (await asyncio.wait({work}, timeout=_PERIOD))[0]:
                passed = time.monotonic() - start
                self._view.update(passed, seconds, await watch.figures(), feeder.report())
            return work.result(), time.monotonic() - start
        finally:
            self._view.stop()
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    def _judged(
        self, classes: dict[str, ClassFigures], report: Report, arrived: int, complaints: list[str]
    ) -> Outcome:
        if not self._options.feed:
            return Outcome(classes, arrived, None, None, tuple(complaints))
        # Others may feed the same server, so more rows than ours are no fault.
        lost = max(0, report.acked - arrived)
        if lost:
            complaints.append(f"{lost} acked tuples are not in their streams")
        return Outcome(classes, report.sent, report.acked, lost, tuple(complaints))

    async def _positions(self, client: AsyncClient) -> int:
        return sum([(await client.stream_info(name)).position for name in STREAMS])


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Take SIGTERM as Ctrl-C, or the server would be left behind."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
