"""Slices: does what the policy decides, and measures what it took."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mavstream_server.core.clock import Clock
from mavstream_server.engine.source_task import SourceTask
from mavstream_server.engine.states import OperatorState
from mavstream_server.engine.task import Task
from mavstream_server.scheduling.view import OperatorKind, Report, Slice

if TYPE_CHECKING:
    from mavstream_server.engine.query import RunningQuery

AnyTask = Task | SourceTask

# Looked up for every turn of every operator.
_READY, _RUN, _SUSPEND = OperatorState.READY, OperatorState.RUN, OperatorState.SUSPEND
_SOURCE, _OUTPUT = OperatorKind.SOURCE, OperatorKind.OUTPUT


class SliceRunner:
    """Runs the operators of a slice, each until a bound is met or nothing waits."""

    def __init__(
        self,
        clock: Clock,
        ran: Callable[[AnyTask, bool], None],
        failed: Callable[[RunningQuery, str, Exception], None],
    ) -> None:
        """`ran` is told behind a turn that something may follow from, and whether figures were published."""
        self._monotonic = clock.monotonic
        self._ran = ran
        self._failed = failed
        self.cut = False
        """Set to end the slice at the next batch: a preemptive policy wants to be asked."""

    def run(self, slice_: Slice) -> Report:
        """Run the operators in their order."""
        # Slices are made of what the engine has shown to the policy.
        tasks: tuple[AnyTask, ...] = slice_.operators  # type: ignore[assignment]
        begin = now = self._monotonic()
        stop = None if slice_.duration is None else begin + slice_.duration
        consumed = produced = answers = response = 0
        self.cut = False
        for task in tasks:
            task.held = True
        for task in tasks:
            if task.state is not _READY:
                continue
            if task.kind is _OUTPUT:
                latency = task.query.output.latency
                count, total = latency.count, latency.total
                rows, now = self._run_task(task, slice_.tuples, stop, now)
                answers += latency.count - count
                response += latency.total - total
            else:
                before = task.work.rows_out
                rows, now = self._run_task(task, slice_.tuples, stop, now)
                produced += task.work.rows_out - before
            consumed += rows
            if self.cut or (stop is not None and now >= stop):
                break
        for task in tasks:
            task.held = False
        return Report(consumed, produced + answers, now - begin, answers, response)

    def _run_task(self, task: AnyTask, tuples: int | None, stop: int | None, begin: int) -> tuple[int, int]:
        """Run an operator from a time on; returns the rows that it took and when it was done."""
        work, monotonic = task.work, self._monotonic
        rows_before, bytes_before = work.rows_out, work.bytes_out
        consumed, calls, now = 0, 1, begin
        task.state = _RUN
        try:
            consumed = task.run(tuples)
            ready, now = task.ready, monotonic()
            # A source hands on one train at a time: what it reads, the operators above work on first.
            if ready and task.kind is not _SOURCE:
                while not (
                    self.cut
                    or (tuples is not None and consumed >= tuples)
                    or (stop is not None and now >= stop)
                ):
                    consumed += task.run(None if tuples is None else tuples - consumed)
                    calls += 1
                    ready, now = task.ready, monotonic()
                    if not ready:
                        break
            if task.state is _RUN:
                task.state = _READY if ready else _SUSPEND
            published = task.collector.add(
                consumed, work.rows_out - rows_before, work.bytes_out - bytes_before, now - begin, calls
            )
            if (
                published
                or task.query.blocked
                or (task.kind is _SOURCE and not ready)
                or (task.kind is _OUTPUT and task.query.output.ended)
            ):
                self._ran(task, published)
        except Exception as error:
            self._failed(task.query, work.name, error)
        return consumed, now
