"""Driver: runs a scenario in virtual time under a policy.

It guarantees what policies may rely on (`scheduling/policy.py`). A slice is computed when it starts, on
the tuples that wait then; its output reaches other operators when it ends (dissertation, 6.2: a query
executes the tuples that have arrived before its scheduling point). So there is one event per slice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from mavstream_server.scheduling.bases.ring import RingPolicy
from mavstream_server.scheduling.mechanisms.units import QueryUnits
from mavstream_server.scheduling.registry import make_policy
from mavstream_server.scheduling.statistics import PUBLISH_EVERY
from mavstream_server.scheduling.view import OperatorView, Report, Slice
from mavstream_server.simulation.model.arrivals import NEVER
from mavstream_server.simulation.model.base_operator import FREE, Readers
from mavstream_server.simulation.model.joins import JoinOperator
from mavstream_server.simulation.model.network import SimulatedNetwork
from mavstream_server.simulation.model.operators import SimulatedOperator
from mavstream_server.simulation.model.queries import SimulatedQuery
from mavstream_server.simulation.model.sources import SourceOperator, VirtualClock
from mavstream_server.simulation.run.cores import Core
from mavstream_server.simulation.run.slices import AnyOperator, SimulatedSliceRunner
from mavstream_server.simulation.run.source_service import chosen_service, make_intake
from mavstream_server.simulation.run.timetable import Timetable
from mavstream_server.simulation.scenario import SECOND, Scenario, Service


class RunDigest:
    """Hash of all slices of a run; equal for two runs that did the same at the same times."""

    __slots__ = ("_hash", "slices")

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)
        self.slices = 0

    def add(self, now: int, core: int, slice_: Slice, report: Report) -> None:
        """Add a slice that has ended."""
        numbers = [operator.number for operator in slice_.operators]
        self._hash.update(repr((now, core, numbers, tuple(report))).encode())
        self.slices += 1

    @property
    def digest(self) -> str:
        """The hash in hexadecimal."""
        return self._hash.hexdigest()


class Driver:
    """A run: the view on which the policy decides, and the event loop that executes its decisions."""

    def __init__(
        self,
        scenario: Scenario,
        policy: str,
        options: Mapping[str, Any] | None = None,
        seed: int = 0,
        digest: RunDigest | None = None,
    ) -> None:
        self.scenario = scenario
        self.clock = VirtualClock()
        self.random = Random(seed)
        self.priorities: dict[str, int] = dict(scenario.priorities)
        self.queries: dict[str, SimulatedQuery] = {}
        self.policy = make_policy(policy, self, options)
        self.service = chosen_service(scenario, self.policy.sources)
        self.network = SimulatedNetwork(scenario, seed, self.service, self.clock)
        self.cores = [Core(number) for number in range(scenario.cores)]
        ring = scenario.overheads.ring_visits and isinstance(self.policy, RingPolicy)
        operators = sum(len(query.operators) for query in scenario.queries)
        self.runner = SimulatedSliceRunner(
            scenario.overheads, scenario.exact_quantum, seed, operators if ring else 0
        )
        self.slices = self.preemptions = self.consultations = 0
        """Counters; a consultation is a tuple that arrived while a slice was running."""
        self.work_arrived = True
        """Whether something has become ready since idle cores were last offered work."""
        self._cut = False  # whether the policy requested an immediate decision
        self._watches_growth = self.policy.watches_growth
        self._scheduled = self.service is Service.PER_CLASS
        self._serving = self.service is Service.BETWEEN_SLICES
        self._events: list[tuple[int, int, Core]] = []
        self._numbers = count()
        self._idle = list(self.cores)
        self._digest = digest
        self.intake = make_intake(self)
        self.timetable = Timetable(self)

    # Event loop

    def run(self) -> None:
        """Run until the end time, or until all tuples are processed."""
        for id_, query in self.network.queries.items():
            self.queries[id_] = query
            self.policy.admit(query)
        seconds = self.scenario.seconds
        horizon = NEVER - 1 if seconds is None else int(seconds * SECOND)
        self._wake(0)
        self._run(horizon)
        while not self._events and self._stop_waiting():
            self._run(horizon)
        if seconds is not None:
            while self.timetable.next <= horizon:
                self.timetable.handle()
            self.clock.now = horizon

    def _run(self, horizon: int) -> None:
        """Process events up to the horizon. Inlined: calls for every slice would cost 20 %."""
        events, intake, clock, timetable = self._events, self.intake, self.clock, self.timetable
        begin, finished, next_slice = self.runner.begin, self.policy.finished, self.policy.next
        numbers, serving = self._numbers, self._serving
        limit = min(timetable.next, horizon + 1)
        while True:
            now = events[0][0] if events else NEVER
            due = intake.next <= now
            if due:
                now = intake.next
            if now >= limit:
                if now > horizon:
                    return
                timetable.handle()
                limit = min(timetable.next, horizon + 1)
                continue
            clock.now = now
            if due:
                intake.handle(now)
            else:
                _, number, core = heappop(events)
                slice_ = core.slice
                if core.due != number:
                    pass  # the slice was preempted
                elif slice_ is None:
                    self._end_serving(core, now)
                else:
                    self._end(core, slice_, now)
                    finished(slice_, core.report)
                    if not (serving and intake.before_slice(core, now)):
                        slice_ = next_slice(core.number, now)
                        if slice_ is None:
                            self._rest_core(core, now)
                        else:
                            self.slices += 1
                            core.due = number = next(numbers)
                            heappush(events, (begin(core, slice_, now), number, core))
            if self._cut:
                self._cut_off(now)
            if self._idle and self.work_arrived:
                self._wake(now)

    def _wake(self, now: int) -> None:
        """Ask the policy for slices for idle cores, until there is none for one of them."""
        self.work_arrived = False
        cores, self._idle = self._idle, []
        while cores and not self._idle:
            self._go_on(cores.pop(0), now)
        self._idle += cores

    def _stop_waiting(self) -> bool:
        """Let joins stop waiting, as no more tuples will arrive; return whether any was waiting."""
        joins = [operator for operator in self.network.operators if isinstance(operator, JoinOperator)]
        waiting = [join for join in joins if join.queued and not join.ready]
        for join in waiting:
            join.stop_waiting()
            join.ready = True
            self.arrived(join, self.clock.now)
        if waiting:
            self._wake(self.clock.now)
        return bool(waiting)

    # Arrivals

    def deliver(self, readers: Readers, batch: Sequence[int], now: int) -> None:
        """Add tuples to the queues of their readers, and notify the policy for those that are not running."""
        for reader, port in readers:
            if reader.appends:
                reader.waiting += batch
            else:
                reader.receive(batch, port)
            if reader.core != FREE:
                continue
            if reader.ready:
                if self._watches_growth:
                    self.policy.grew(reader, now)
            elif reader.appends or reader.has_work():
                reader.ready = self.work_arrived = True
                if self.policy.arrived(reader, now):
                    self._cut = True

    def arrived(self, operator: OperatorView, now: int) -> None:
        """Notify the policy of an operator that has something to do."""
        self.work_arrived = True
        if self.policy.arrived(operator, now):
            self._cut = True

    def consult(self) -> None:
        """Count a tuple that arrived while a core was busy: a preemptive policy is invoked for it."""
        self.consultations += len(self._idle) < len(self.cores)

    # Cores

    def _go_on(self, core: Core, now: int) -> None:
        if not self.intake.before_slice(core, now):
            self._decide(core, now)

    def _decide(self, core: Core, now: int) -> None:
        slice_ = self.policy.next(core.number, now)
        if slice_ is None:
            self._rest_core(core, now)
        else:
            self.slices += 1
            core.due = number = next(self._numbers)
            heappush(self._events, (self.runner.begin(core, slice_, now), number, core))

    def _rest_core(self, core: Core, now: int) -> None:
        if not self.intake.when_idle(core, now):
            self._idle.append(core)

    def serve(self, core: Core, sources: Sequence[SourceOperator], now: int, empty: int) -> None:
        """Let a core run sources, after `empty` visits of sources that had nothing."""
        until = self.runner.serve(core, sources, now, empty)
        core.due = number = next(self._numbers)
        heappush(self._events, (until, number, core))

    def _end(self, core: Core, slice_: Slice, now: int) -> None:
        core.busy += now - core.begin
        core.slice = core.single = None
        if core.outbox:
            for readers, batch in core.outbox:
                self.deliver(readers, batch, now)
            core.outbox.clear()
        operators: tuple[SimulatedOperator, ...] = slice_.operators  # type: ignore[assignment]
        for operator in operators:
            operator.core = FREE
            operator.ready = (
                operator.head < len(operator.waiting) if operator.appends else operator.has_work()
            )
            if operator.rows_in >= PUBLISH_EVERY and operator.publish():
                self.refresh(operator)
        if self._scheduled:
            self._rest_sources(slice_)
        if self._digest is not None:
            self._digest.add(now, core.number, slice_, core.report)

    def _rest_sources(self, slice_: Slice) -> None:
        for operator in slice_.operators:
            if isinstance(operator, SourceOperator) and not operator.ready:
                self.intake.await_arrivals(operator)

    def _end_serving(self, core: Core, now: int) -> None:
        core.busy += now - core.begin
        batches, core.source_outbox = core.source_outbox, []
        for source, batch in batches:
            source.core = FREE
            self.deliver(source.readers, batch, now)
            self.intake.await_arrivals(source)
        self._decide(core, now)

    def _cut_off(self, now: int) -> None:
        """Preempt the running slices that can be preempted, at the request of the policy."""
        self._cut = False
        for core in self.cores:
            slice_ = core.slice
            if slice_ is not None and core.single is not None and now < core.begin + core.report.elapsed:
                self.preemptions += 1
                self.runner.cut(core, now)
                core.due = -1
                self._end(core, slice_, now)
                self.policy.finished(slice_, core.report)
                self._go_on(core, now)

    def refresh(self, operator: AnyOperator) -> None:
        """Recompute a query's units if the statistics of an operator have changed by more than 10 %."""
        query = operator.query
        if query.units.moved(operator):
            query.units = QueryUnits(query)
            self.policy.refreshed(query)
