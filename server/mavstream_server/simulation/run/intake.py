"""Intake: delivery of tuples from streams to the queues of leaves, for each kind of source service."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from mavstream_server.simulation.model.arrivals import NEVER, ArrivalTimes, merge_arrivals
from mavstream_server.simulation.model.base_operator import Readers
from mavstream_server.simulation.model.sources import SourceOperator
from mavstream_server.simulation.run.cores import Core
from mavstream_server.simulation.run.source_order import source_order

if TYPE_CHECKING:
    from mavstream_server.simulation.run.driver import Driver


_AT_ONCE = 2
"""Sources that are run between two slices, as in the live engine."""


class SimulatedIntake:
    """Base of intakes; at the time `next`, tuples arrive or sources have something to read."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.next = NEVER

    def handle(self, now: int) -> None:
        """Process the event at the time `next`."""

    def before_slice(self, core: Core, now: int) -> bool:
        """Let a core run sources before it gets a slice; return whether it does."""
        return False

    def when_idle(self, core: Core, now: int) -> bool:
        """Let a core for which there is no slice run sources; return whether it does."""
        return False

    def await_arrivals(self, source: SourceOperator) -> None:
        """Wait until a source has something to read again."""


class DirectIntake(SimulatedIntake):
    """Tuples are in the queues of leaves at the moment they arrive."""

    def __init__(
        self,
        driver: Driver,
        arrivals: Sequence[ArrivalTimes],
        readers: Sequence[Readers],
    ) -> None:
        super().__init__(driver)
        self._readers = readers
        self._arrivals = merge_arrivals(arrivals)
        self._index = 0
        self.delivered = 0
        """Tuples delivered so far."""
        self.delivered_to_readers = 0
        """Tuples delivered so far, counted once for each reader."""
        self._go_on()

    def _go_on(self) -> None:
        self.next, self._index = next(self._arrivals, (NEVER, 0))

    def handle(self, now: int) -> None:
        """Deliver one tuple."""
        readers = self._readers[self._index]
        self._go_on()
        self.delivered += 1
        self.delivered_to_readers += len(readers)
        self._driver.consult()
        self._driver.deliver(readers, (now,), now)


class WakingIntake(SimulatedIntake):
    """Sources sleep until tuples have arrived for them."""

    def __init__(self, driver: Driver, sources: Sequence[SourceOperator]) -> None:
        super().__init__(driver)
        self._asleep: list[tuple[int, int, SourceOperator]] = []
        for source in sources:
            self.await_arrivals(source)

    def await_arrivals(self, source: SourceOperator) -> None:
        """Wait until a source has something to read again."""
        source.ready = False
        if source.arrivals.next < NEVER:
            heappush(self._asleep, (source.arrivals.next, source.number, source))
            self.next = self._asleep[0][0]

    def handle(self, now: int) -> None:
        """Wake the source whose time has come."""
        source = heappop(self._asleep)[2]
        self.next = self._asleep[0][0] if self._asleep else NEVER
        source.ready = True
        self.woken(source, now)

    def woken(self, source: SourceOperator, now: int) -> None:
        """React to a source that has something to read."""


class ScheduledIntake(WakingIntake):
    """Policies run the sources, as operators of their queries."""

    def woken(self, source: SourceOperator, now: int) -> None:
        """Notify the policy."""
        self._driver.arrived(source, now)


class SharedCoreIntake(WakingIntake):
    """Cores run the sources: a few between two slices, or all of them when nothing else is ready."""

    def __init__(self, driver: Driver, sources: Sequence[SourceOperator], eager: bool) -> None:
        self._line: deque[SourceOperator] = deque()
        self._eager = eager
        self._sources = len(sources)
        super().__init__(driver, sources)

    def woken(self, source: SourceOperator, now: int) -> None:
        """Add the source to the queue."""
        self._line.append(source)
        self._driver.work_arrived = True

    def before_slice(self, core: Core, now: int) -> bool:
        """Run the first two sources in the queue whose previous output has been consumed."""
        return self._eager and bool(self._line) and self._serve(core, now, _AT_ONCE)

    def when_idle(self, core: Core, now: int) -> bool:
        """Run all sources in the queue; the others cost an empty visit."""
        if not self._line:
            return False
        if self._eager:
            return self._serve(core, now, len(self._line))
        empty = self._sources - len(self._line)
        return self._serve(core, now, len(self._line), empty)

    def _serve(self, core: Core, now: int, most: int, empty: int = 0) -> bool:
        line, chosen = self._line, list[SourceOperator]()
        for _ in range(min(most, len(line))):
            source = line.popleft()
            if source.may_read():
                chosen.append(source)
            else:
                line.append(source)
        if chosen:
            self._driver.serve(core, chosen, now, empty)
        return bool(chosen)

    def await_arrivals(self, source: SourceOperator) -> None:
        """Add the source to the queue again, or wait until tuples arrive."""
        if source.has_work():
            self._line.append(source)
        else:
            super().await_arrivals(source)


class OwnCoreIntake(SimulatedIntake):
    """Separate cores run the sources, in turn or by slots; a source is read by one core at a time.

    They do not depend on the policy, so they need no events of their own, and all of their state is in the
    local variables of one generator.
    """

    def __init__(self, driver: Driver, sources: Sequence[SourceOperator], cores: int) -> None:
        super().__init__(driver)
        self._sources = sources
        self._serving: list[tuple[int, int, Core, int, Sequence[int]]] = []
        self.cores = [Core(len(driver.cores) + number) for number in range(max(cores, 1))]
        self._handings = self._serve()
        self._go_on()

    def handle(self, now: int) -> None:
        """Pass on what a core has read, and let it continue."""
        readers, batch = self._readers, self._batch
        self._go_on()
        self._driver.deliver(readers, batch, now)

    def _go_on(self) -> None:
        self.next, self._readers, self._batch = next(self._handings, (NEVER, (), ()))

    @property
    def in_flight(self) -> int:
        """Tuples that were read and not yet passed on, counted once for each reader."""
        under_way = [(self._sources[index].readers, batch) for *_, index, batch in self._serving]
        return sum(len(readers) * len(batch) for readers, batch in [*under_way, (self._readers, self._batch)])

    def _serve(self) -> Iterator[tuple[int, Readers, Sequence[int]]]:
        """Return (time, readers, tuples) of what the cores pass on.

        Sources without tuples are skipped at no cost: a core would visit them while it waits.
        """
        sources, runner, serving = self._sources, self._driver.runner, self._serving
        turn, factors = runner.turn, runner.factors
        coming = [
            (source.arrivals.next, index)
            for index, source in enumerate(sources)
            if source.arrivals.next < NEVER
        ]
        heapify(coming)
        free = [(0, core.number, core) for core in self.cores]
        line = source_order(self._driver.scenario, sources)  # of sources that have tuples, by index
        batch: Sequence[int]
        while True:
            while free and (line.waiting or coming):
                time, number, core = heappop(free)
                if not line.waiting and coming[0][0] > time:
                    time = coming[0][0]
                while coming and coming[0][0] <= time:
                    line.add(heappop(coming)[1])
                index = line.take()
                source = sources[index]
                core.begin = time
                runner.calls += 1
                end, batch = source.read(time + turn(core, source), next(factors))
                heappush(serving, (end, number, core, index, batch))
            if not serving:
                return
            end, number, core, read, batch = heappop(serving)
            source = sources[read]
            core.busy += end - core.begin
            if source.arrivals.next < NEVER:
                heappush(coming, (source.arrivals.next, read))
            heappush(free, (end, number, core))
            yield end, source.readers, batch
