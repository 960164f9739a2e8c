"""The demo: starts a server, submits queries, feeds, tells its story, and checks the outcome."""

from __future__ import annotations

import asyncio
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from mavstream import AsyncClient, Conflict
from mavstream.testing import start_server
from mavstream_feeder.demo.alarms import FireAlarms
from mavstream_feeder.demo.director import Director, acts_until
from mavstream_feeder.demo.homes import HOMES, Homes
from mavstream_feeder.demo.load import Load
from mavstream_feeder.demo.outcome import ClassMetrics, Outcome
from mavstream_feeder.demo.story import FIRE_AT, LEAST_SECONDS, SECONDS, Told
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
_PATIENCE = 120.0
"""Seconds for a server to start: the first time, Python compiles all modules."""
_SETTLING = 0.2
"""The share of an act that is not measured: rows that waited before it are answered."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Options of the demo."""

    seconds: float = SECONDS
    rates: tuple[str, ...] = ()
    """Rates of the sample; without any, homes are fed as recorded, and the story is told."""
    data: Path = HOMES
    """The dataset with the homes."""
    seed: int = 0
    policy: str | None = None
    feed: bool = True
    live: bool = True
    """Whether to print progress and the summary."""

    @property
    def told(self) -> bool:
        """Whether the story is told."""
        return not self.rates and self.seconds >= LEAST_SECONDS

    @property
    def story_seconds(self) -> float:
        """How long the story takes; after it the homes are fed until the time is over."""
        return min(self.seconds, SECONDS)

    @property
    def fire_after(self) -> float:
        """The seconds after which the fire breaks out: in the last act, or early if there are no acts."""
        return (FIRE_AT if self.told else 0.25) * self.story_seconds


def run_demo(options: DemoOptions, address: Address | None) -> Outcome:
    """Run the demo on the server at `address`, or on one that is started for it."""
    parse_rates(options.rates or ("1",), STREAMS)
    homes = None if options.rates else Homes(options.data)
    view = View(live=options.live)
    with _sigterm_as_interrupt():
        if address is not None:
            return asyncio.run(_run(options, homes, address, view, own=False))
        view.say("starting a server ...")
        with start_server(timeout=_PATIENCE, page=options.live) as url:
            return asyncio.run(_run(options, homes, Address(url), view, own=True))


async def _run(
    options: DemoOptions, homes: Homes | None, address: Address, view: View, *, own: bool
) -> Outcome:
    async with AsyncClient(address.url, token=address.token, timeout=60.0) as client:
        return await _Demo(options, homes, address, view, client, own=own).run()


class _Demo:
    """One run of the demo on one server."""

    def __init__(
        self,
        options: DemoOptions,
        homes: Homes | None,
        address: Address,
        view: View,
        client: AsyncClient,
        *,
        own: bool,
    ) -> None:
        self._options = options
        self._homes = homes
        self._address = address
        self._view = view
        self._client = client
        self._own = own
        self._prefix = "" if own else f"demo_{secrets.token_hex(3)}_"
        self._alarms = None if homes is None else FireAlarms(homes)
        self._watch = Watch(client, self._alarms)
        self._feeder = Feeder(address, Options(seed=options.seed))
        self._origin: int | None = None
        """The recorded time at which the homes begin; None if they are not fed."""
        self._started = 0.0

    async def run(self) -> Outcome:
        """Run the demo and return its outcome."""
        await self._prepare()
        load = Load(self._client, self._address, self._prefix)
        director = Director(self._client, load, await self._client.scheduler())
        before = await self._positions()
        failures: list[str] = []
        try:
            self._view.say(self._greeting())
            await self._watch.submit(self._prefix)
            try:
                report = await self._work(director)
            finally:
                # Ctrl-C in a terminal ends a server of our own, too: nothing can be restored there.
                await director.close(restore=not self._own)
            passed = self._passed
            if self._options.feed:
                failures += await self._watch.settle(all_answer=bool(self._options.rates))
            classes = await self._watch.metrics()
            arrived = await self._positions() - before
        finally:
            failures += await self._watch.close(remove=not self._own)
        told = self._told(director)
        if told is not None and self._options.feed:
            failures += told.unfound()
        outcome = self._checked(classes, report, arrived, failures, told)
        self._view.summary(passed, outcome)
        return outcome

    def _greeting(self) -> str:
        queries = f"21 queries in three classes; watch them in a browser at {self._address.url}"
        if self._homes is None or not self._options.feed:
            return queries
        return f"{self._homes.count} homes, in which a day passes in a minute.\n{queries}"

    async def _prepare(self) -> None:
        for spec in STREAMS.values():
            try:
                await self._client.create_stream(spec)
            except Conflict:
                # It exists from an earlier run; the queries fail if its fields do not fit.
                await self._client.stream_info(spec.name)
        if self._options.policy is not None:
            await self._client.set_scheduler(self._options.policy)

    async def _work(self, director: Director) -> Report:
        """Feed, or wait, for the given time, tell the story and show metrics; return the feeder's report."""
        seconds = self._options.seconds
        work: asyncio.Task[Report]
        if self._options.feed:
            self._add_streams()
            work = asyncio.create_task(self._feeder.run(seconds))
        else:
            work = asyncio.create_task(asyncio.sleep(seconds, self._feeder.report()))
        self._started = time.monotonic()
        self._view.start()
        try:
            for act, begin, end in acts_until(self._options.story_seconds) if self._options.told else ():
                policy = await director.begin(act)
                self._view.act(act, policy, self._clock())
                await self._show(work, begin + _SETTLING * (end - begin))
                await director.measure(act, self._passed)
                await self._show(work, end)
                await director.end(self._passed)
                if work.done():
                    break
            await self._show(work, None)
            return work.result()
        finally:
            self._view.stop()
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    def _add_streams(self) -> None:
        if self._homes is not None:
            self._origin = self._homes.origin(self._options.fire_after)
            self._homes.feed(self._feeder, self._origin)
            return
        for name, rate in parse_rates(self._options.rates, STREAMS).items():
            recorded = rate if isinstance(rate, Recorded) else None
            source = FileSource(sample_file(name), STREAMS[name], loop=True, stamp=True, recorded=recorded)
            self._feeder.add(name, source, rate)

    async def _show(self, work: asyncio.Task[Report], end: float | None) -> None:
        """Show metrics until so many seconds have passed, or the work has ended."""
        while end is None or self._passed < end:
            left = _PERIOD if end is None else min(_PERIOD, max(end - self._passed, 0.0))
            if (await asyncio.wait({work}, timeout=left))[0]:
                return
            metrics = await self._watch.metrics()
            shown = (metrics, self._watch.recent, self._feeder.report(), self._clock())
            self._view.update(self._passed, self._options.seconds, *shown)

    @property
    def _passed(self) -> float:
        return time.monotonic() - self._started

    def _clock(self) -> str | None:
        """Return the time of day in the homes; None if they are not fed here."""
        if self._homes is None or self._origin is None:
            return None
        return self._homes.clock(self._origin, self._passed)

    def _told(self, director: Director) -> Told | None:
        if self._homes is None or self._alarms is None or not self._options.told:
            return None
        return Told(director.acts, self._alarms.found, self._homes.fires)

    def _checked(
        self,
        classes: dict[str, ClassMetrics],
        report: Report,
        arrived: int,
        failures: list[str],
        told: Told | None,
    ) -> Outcome:
        if not self._options.feed:
            return Outcome(classes, arrived, None, None, tuple(failures), told)
        # Others may feed the same server, so there may be more rows.
        lost = max(0, report.acked - arrived)
        if lost:
            failures.append(f"{lost} acknowledged rows are not in their streams")
        return Outcome(classes, report.sent, report.acked, lost, tuple(failures), told)

    async def _positions(self) -> int:
        return sum([(await self._client.stream_info(name)).position for name in STREAMS])


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
