"""The demo: starts a server, submits queries, feeds, and checks the outcome."""

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
from mavstream_feeder.demo.outcome import ClassMetrics, Outcome
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
    """Options of the demo."""

    seconds: float
    rates: tuple[str, ...]
    seed: int = 0
    policy: str | None = None
    feed: bool = True
    live: bool = True
    """Whether to print progress and the summary."""


def run_demo(options: DemoOptions, address: Address | None) -> Outcome:
    """Run the demo on the server at `address`, or on one that is started for it."""
    parse_rates(options.rates, STREAMS)
    view = View(live=options.live)
    with _sigterm_as_interrupt():
        if address is not None:
            return asyncio.run(_Demo(options, address, view, own=False).run())
        view.say("starting a server ...")
        with start_server(page=options.live) as url:
            return asyncio.run(_Demo(options, Address(url), view, own=True).run())


class _Demo:
    """One run of the demo on one server."""

    def __init__(self, options: DemoOptions, address: Address, view: View, *, own: bool) -> None:
        self._options = options
        self._address = address
        self._view = view
        self._own = own

    async def run(self) -> Outcome:
        """Run the demo and return its outcome."""
        async with AsyncClient(self._address.url, token=self._address.token, timeout=30.0) as client:
            await self._prepare(client)
            before = await self._positions(client)
            watch = Watch(client)
            failures: list[str] = []
            try:
                self._view.say(f"21 queries in three classes; watch them in a browser at {self._address.url}")
                await watch.submit("" if self._own else f"demo_{secrets.token_hex(3)}_")
                report, passed = await self._work(watch)
                failures += await watch.settle() if self._options.feed else []
                classes = await watch.metrics()
                after = await self._positions(client)
            finally:
                failures += await watch.close(remove=not self._own)
        outcome = self._checked(classes, report, after - before, failures)
        self._view.summary(passed, outcome)
        return outcome

    async def _prepare(self, client: AsyncClient) -> None:
        for spec in STREAMS.values():
            try:
                await client.create_stream(spec)
            except Conflict:
                # It exists from an earlier run; the queries fail if its fields do not fit.
                await client.stream_info(spec.name)
        if self._options.policy is not None:
            await client.set_scheduler(self._options.policy)

    async def _work(self, watch: Watch) -> tuple[Report, float]:
        """Feed, or wait, for the given time and show metrics; return the report and the time taken."""
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
                self._view.update(passed, seconds, await watch.metrics(), feeder.report())
            return work.result(), time.monotonic() - start
        finally:
            self._view.stop()
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    def _checked(
        self, classes: dict[str, ClassMetrics], report: Report, arrived: int, failures: list[str]
    ) -> Outcome:
        if not self._options.feed:
            return Outcome(classes, arrived, None, None, tuple(failures))
        # Others may feed the same server, so there may be more rows.
        lost = max(0, report.acked - arrived)
        if lost:
            failures.append(f"{lost} acknowledged rows are not in their streams")
        return Outcome(classes, report.sent, report.acked, lost, tuple(failures))

    async def _positions(self, client: AsyncClient) -> int:
        return sum([(await client.stream_info(name)).position for name in STREAMS])


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C, so that the server is stopped."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
