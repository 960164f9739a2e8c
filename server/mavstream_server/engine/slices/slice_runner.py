"""Runs the slices that the policy decides, and measures their tuples and time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mavstream_server.columns.batch import Batch
from mavstream_server.core.clock import Clock
from mavstream_server.engine.crash_record import CrashRecord
from mavstream_server.engine.sources.source_task import SourceTask
from mavstream_server.engine.states import OperatorState
from mavstream_server.engine.task import STEP_NS, Task
from mavstream_server.scheduling.view import OperatorKind, Report, Slice

if TYPE_CHECKING:
    from mavstream_server.engine.query import RunningQuery

AnyTask = Task | SourceTask

# Module globals, since they are looked up in every run of every operator.
_READY, _RUN, _SUSPEND = OperatorState.READY, OperatorState.RUN, OperatorState.SUSPEND
_SOURCE = OperatorKind.SOURCE


class _OperatorBroke(Exception):
    """An operator raised an error while a fused operator below it was running."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(name, error)
        self.name = name
        self.error = error


class SliceRunner:
    """Runs the operators of a slice, each until a bound is reached or its inputs are empty.

    Operators that are fused with one below them run inside its call; their time is subtracted from its time,
    so that the statistics are those of each operator alone.
    """

    def __init__(
        self,
        clock: Clock,
        ran: Callable[[AnyTask, bool], None],
        failed: Callable[[RunningQuery, str, Exception], None],
        record: CrashRecord,
    ) -> None:
        """`ran` is called with a task that may need follow-up, and whether its statistics were published.

        `failed` is called with the query, the operator name and the exception of an operator that raised.

        `record` notes which query runs.
        """
        self._monotonic = clock.monotonic
        self._ran = ran
        self._failed = failed
        self._record = record
        self.cut = False
        """Set to end the slice at the next batch, so that a preemptive policy can decide again."""
        self._inner = 0  # ns in fused operators above the one that runs
        self._consumed = self._produced = 0  # tuples of fused operators in this slice
        self._published: list[Task] = []  # fused operators that published statistics in this call

    def run(self, slice_: Slice) -> Report:
        """Run the operators of a slice in order; returns what was consumed, produced and spent."""
        # Policies build slices from the tasks that the engine has shown to them.
        tasks: tuple[AnyTask, ...] = slice_.operators  # type: ignore[assignment]
        begin = now = self._monotonic()
        stop = None if slice_.duration is None else begin + slice_.duration
        consumed = produced = answers = response = 0
        self.cut = False
        self._consumed = self._produced = 0
        for task in tasks:
            task.held = True
        for task in tasks:
            if task.state is not _READY:
                continue
            latency, before = task.query.output.latency, task.work.rows_out
            count, total = latency.count, latency.total
            rows, now = self._run_task(task, slice_.tuples, stop, now)
            answers += latency.count - count
            response += latency.total - total
            produced += task.work.rows_out - before
            consumed += rows
            if self.cut or (stop is not None and now >= stop):
                break
        for task in tasks:
            task.held = False
        consumed += self._consumed
        produced += self._produced
        return Report(consumed, produced + answers, now - begin, answers, response)

    def _run_task(self, task: AnyTask, tuples: int | None, stop: int | None, begin: int) -> tuple[int, int]:
        """Run an operator that starts at `begin`; returns the rows that it consumed and when it ended."""
        work, query, monotonic = task.work, task.query, self._monotonic
        rows_before, bytes_before = work.rows_out, work.bytes_out
        consumed, calls, now = 0, 1, begin
        self._inner = 0
        task.state = _RUN
        if isinstance(task, SourceTask):
            task.choose(tuples)
        self._record.begin(query.note, query.noted_positions, begin)
        try:
            consumed = task.run(tuples)
            ready, now = task.ready, monotonic()
            # A source emits one train at a time, which the operators above process before it reads on.
            if ready and task.kind is not _SOURCE:
                while not (
                    self.cut
                    or (tuples is not None and consumed >= tuples)
                    or (stop is not None and now >= stop)
                    or (task.stepped and now - begin >= STEP_NS)
                ):
                    consumed += task.run(None if tuples is None else tuples - consumed)
                    calls += 1
                    ready, now = task.ready, monotonic()
                    if not ready:
                        break
            if task.state is _RUN:
                task.state = _READY if ready else _SUSPEND
                if not ready and work.unfinished is not None and isinstance(task, Task):
                    task.continue_later()
            elapsed = now - begin - self._inner
            published = task.collector.add(
                consumed, work.rows_out - rows_before, work.bytes_out - bytes_before, elapsed, calls
            )
            if published and isinstance(task, Task):
                task.measured()
            if self._published:
                self._follow_up()
            if published or query.blocked or (task.kind is _SOURCE and not ready) or query.output.ended:
                self._ran(task, published)
        except _OperatorBroke as broke:
            self._published.clear()
            self._failed(query, broke.name, broke.error)
        except Exception as error:
            self._published.clear()
            self._failed(query, work.name, error)
        self._record.end()
        return consumed, now

    def receiver(self, task: Task, port: int) -> Callable[[Batch], None]:
        """Return what a fused operator below `task` calls with its batches for the input `port`."""
        work, monotonic = task.work, self._monotonic
        queue = work.inputs[port]

        def receive(batch: Batch) -> None:
            if task.interrupted:
                queue.append(batch)
                return
            before = self._inner
            self._inner = 0
            rows, nbytes, begin = work.rows_out, work.bytes_out, monotonic()
            try:
                if task.stepped:
                    self._begin_steps(task, port, batch, begin)
                else:
                    work.begin(port, batch)
            except _OperatorBroke:
                raise
            except Exception as error:
                raise _OperatorBroke(work.name, error) from error
            elapsed, emitted = monotonic() - begin, work.rows_out - rows
            self._consumed += batch.size
            self._produced += emitted
            if task.collector.add(batch.size, emitted, work.bytes_out - nbytes, elapsed - self._inner, 1):
                task.measured()
                self._published.append(task)
            self._inner = before + elapsed

        return receive

    def _begin_steps(self, task: Task, port: int, batch: Batch, begin: int) -> None:
        """Have a fused operator work on a batch for a bounded time; rows that are left are queued."""
        work, rest, until = task.work, None, begin + STEP_NS
        while True:
            if batch.size > (rows := task.step_rows):
                batch, rest = batch.split(rows)
            work.begin(port, batch)
            while work.unfinished is not None and task.ready and self._monotonic() < until:
                work.proceed()
            if rest is None or work.unfinished is not None or self._monotonic() >= until:
                break
            batch, rest = rest, None
        if work.unfinished is not None:
            task.continue_later()
        if rest is not None:
            work.inputs[port].append(rest)

    def _follow_up(self) -> None:
        """Report fused operators that published statistics, now that no operator is running."""
        published, self._published = self._published, []
        for task in published:
            self._ran(task, True)
