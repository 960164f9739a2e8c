"""The engine's loop: serves sources, asks the policy for a slice, runs it, and reports to the policy."""

from __future__ import annotations

from collections import defaultdict

from mavstream_server.core.clock import Clock
from mavstream_server.engine.migration.quiescence import QuiescentPoints
from mavstream_server.engine.policy_host import PolicyHost
from mavstream_server.engine.sharing.sharing import QuerySharing
from mavstream_server.engine.slices.slice_runner import SliceRunner
from mavstream_server.engine.slices.slice_times import SliceTimes
from mavstream_server.engine.slices.trace import Trace
from mavstream_server.engine.sources.intake import Intake
from mavstream_server.engine.stop_times import StopTimes
from mavstream_server.scheduling.policy import SourceService
from mavstream_server.scheduling.view import Slice

_CORE = 0  # an engine is one process on one core


class Loop:
    """The loop of an engine. `step` does a bounded amount of work and returns; it never blocks."""

    def __init__(
        self,
        clock: Clock,
        runner: SliceRunner,
        policy_host: PolicyHost,
        intake: Intake,
        quiescent_points: QuiescentPoints,
        sharing: QuerySharing,
        stop_times: StopTimes,
    ) -> None:
        self._now = clock.now
        self._runner = runner
        self._policy_host = policy_host
        self._intake = intake
        self._quiescent_points = quiescent_points
        self._sharing = sharing
        self._stop_times = stop_times
        self._idle = True
        self.slices = 0
        """The number of slices that were run."""
        self.busy = 0
        """The time that slices took (ns)."""
        self.class_busy: defaultdict[str, int] = defaultdict(int)
        """The time that slices took (ns), by class."""
        self.slice_times = SliceTimes()
        """How long slices took: the time between two decisions of the policy."""
        self.trace: Trace | None = None
        """Where slices are recorded; None while no trace was requested."""

    def step(self) -> bool:
        """Serve the sources, then run one slice; returns whether anything was done."""
        now = self._now()
        intake = self._intake
        if self._quiescent_points.wanted:
            self._quiescent_points.look(now)
        if self._sharing.due <= now and not self._idle:
            self._sharing.attend(now)
        if self._stop_times.due <= now:
            intake.look(now)  # rows that arrived in time are read before the end
            self._stop_times.end_overdue(now)
        if self._idle:
            intake.look(now)
        elif self.slices >= intake.look_at_slice or self.busy >= intake.look_at_busy:
            intake.look_between(now, self.slices, self.busy)
        eager = intake.service is not SourceService.WHEN_IDLE
        served = eager and intake.waiting and intake.serve(now, self._idle)
        slice_ = self._policy_host.policy.next(_CORE, now)
        if slice_ is None and not served and not (self._idle and eager):
            # There is nothing else to do: rows that linger for a full train are emitted as they are.
            intake.look(now)
            served = intake.serve(now, idle=True)
            slice_ = self._policy_host.policy.next(_CORE, now)
        if slice_ is None:
            self._idle = not (self._stop_times.end_overdue(now) or served or self._sharing.rest(now))
            return not self._idle
        self._idle = False
        self.slices += 1
        self._run(slice_, now)
        return True

    def _run(self, slice_: Slice, now: int) -> None:
        report = self._runner.run(slice_)
        elapsed = report.elapsed
        self.busy += elapsed
        self.slice_times.add(elapsed)
        self.class_busy[slice_.operators[0].query.class_name] += elapsed
        if self.trace is not None:
            self.trace.add(now, _CORE, slice_, report)
        self._policy_host.policy.finished(slice_, report)
        self._policy_host.follow_decider()

    @property
    def progress(self) -> int:
        """Grows whenever a query has read anything."""
        return self.slices + self._intake.passed

    def run(self, most: int = 1_000_000_000) -> int:
        """Step until there is nothing to do, at most `most` times; returns the number of steps."""
        for steps in range(most):
            if not self.step():
                return steps
        return most
