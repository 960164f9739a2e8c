"""Operators: take batches from input queues and emit batches to output queues."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from mavstream_protocol.errors import MavstreamError
from mavstream_protocol.queries import OnError
from mavstream_server.columns.batch import Batch, Mark, mark_only
from mavstream_server.expressions import RowErrors
from mavstream_server.operators.progress import Progress
from mavstream_server.operators.queue import Queue

State = dict[str, Any]
"""The saved state of an operator: scalars, texts, arrays, columns and batches, in dicts and lists."""


class QueryFailed(MavstreamError):
    """A query cannot continue; other queries are not affected."""

    code = "query_failed"


class Operator(ABC):
    """An operator of a running query.

    The engine drives it: `process` is called with one batch of one input at a time, in the order of that
    input's queue. What it emits must depend neither on how rows are divided into batches nor on how the
    inputs take turns, except for the order of rows where the plan guarantees none.
    """

    kind: str
    """The operator's name in plans; one class may implement several kinds, and several classes one."""
    acts_on_watermarks = True
    """Whether it does more with a mark than to pass it on."""

    def __init__(self, name: str, ports: int = 1) -> None:
        self.name = name
        self.inputs: list[Queue] = []
        self.outputs: list[Queue] = []
        self.progress = Progress(ports)
        self.counters: Counter[str] = Counter()
        """Numbers of rows that take part in no answer, by reason: `late`, `missed`, `outside`, `errors`,
        `unmatched`, `unread`, `shed`; and of windows without an answer: `skipped_windows`."""
        self.rows_out = 0
        self.bytes_out = 0
        self.unfinished: Iterator[None] | None = None
        """The rest of the work on the last batch; no other batch may be processed before it is done."""

    @property
    def all_outputs(self) -> list[Queue]:
        """All queues that the operator may emit to."""
        return self.outputs

    def count(self, reason: str, rows: int) -> None:
        """Count rows that take part in no answer; does nothing for 0 rows."""
        if rows:
            self.counters[reason] += rows

    def attach(self, queue: Queue, output: str | None = None) -> None:
        """Emit to a queue from now on; `output` names the output where an operator has several."""
        self.outputs.append(queue)

    def detach(self, queue: Queue) -> None:
        """Stop emitting to a queue."""
        self.outputs.remove(queue)

    @abstractmethod
    def process(self, port: int, batch: Batch) -> None:
        """Process a batch of the input `port`; results are emitted with `emit`."""

    def begin(self, port: int, batch: Batch) -> None:
        """Process a batch, or its first step if it may take long; `unfinished` is what remains."""
        self.process(port, batch)

    def proceed(self) -> None:
        """Do the next step of the unfinished work."""
        assert self.unfinished is not None
        if next(self.unfinished, _END) is _END:
            self.unfinished = None

    def finish(self, most: int | None = None) -> bool:
        """Do all unfinished work, but stop when it has emitted more than `most` bytes.

        Returns whether it is done.
        """
        begun = self.bytes_out
        while self.unfinished is not None and (most is None or self.bytes_out - begun <= most):
            self.proceed()
        return self.unfinished is None

    def abandon(self) -> None:
        """Drop unfinished work and what waits at the inputs, because the query has ended."""
        self.unfinished = None
        for queue in self.inputs:
            queue.clear()

    def emit(self, batch: Batch) -> None:
        """Push a batch to all output queues; a watermark without rows only where it leads to anything."""
        if not batch.size:
            if batch.mark is not None:
                self._emit_without_rows(batch, batch.mark)
            return
        self.rows_out += batch.size
        self.bytes_out += batch.nbytes
        for queue in self.outputs:
            queue.push(batch)

    def _emit_without_rows(self, batch: Batch, mark: Mark) -> None:
        for queue in self.outputs:
            if queue.takes_watermarks or mark.end or mark.gap is not None:
                queue.push(batch)

    def emit_mark(self, mark: Mark | None) -> None:
        """Emit a mark without rows; does nothing for None."""
        if mark is not None:
            self.emit(mark_only(mark))

    @property
    def state_bytes(self) -> int:
        """Bytes of the state that the operator holds between two calls."""
        return 0

    @property
    def oldest_held(self) -> int | None:
        """Earliest arrival (UTC, ns) of the rows that the operator buffers to emit them later, or None."""
        return None

    @property
    def oldest_unfinished(self) -> int | None:
        """Earliest arrival (UTC, ns) of the batch that is not finished, or None if there is no such batch."""
        return None

    def agrees(self, other: Operator) -> bool:
        """Whether both operators would emit the same from now on, given the same input.

        Their nodes must do the same.
        """
        if self.unfinished is not None or other.unfinished is not None:
            return False
        return self.progress.save() == other.progress.save()

    def save(self) -> State:
        """Return the state with which another operator of the same plan node can continue."""
        return {"progress": self.progress.save(), "counters": dict(self.counters)}

    def load(self, state: State) -> None:
        """Restore the state that `save` of an operator of the same plan node returned."""
        self.progress.load(state["progress"])
        self.counters = Counter(state["counters"])


_END = object()


class SteppedOperator(Operator):
    """An operator for which a batch may take long; its work is divided into steps of bounded size.

    Between two steps other operators may run, so that important queries never wait for a large answer. What
    takes the longer the more rows or groups are held is done in pieces (`columns/pieces.py`).
    """

    _begun: Batch

    @abstractmethod
    def steps(self, port: int, batch: Batch) -> Iterator[None]:
        """Process a batch of the input `port`; yields after each step but the last."""

    def process(self, port: int, batch: Batch) -> None:
        """Process a batch without interruption."""
        self.begin(port, batch)
        self.finish()

    def begin(self, port: int, batch: Batch) -> None:
        """Do the first step of processing a batch."""
        assert self.unfinished is None
        self.unfinished = self.steps(port, batch)
        self._begun = batch
        self.proceed()

    @property
    def oldest_unfinished(self) -> int | None:
        """Earliest arrival (UTC, ns) of the batch that is not finished, or None if there is no such batch."""
        if self.unfinished is None:
            return None
        arrivals = [int(self._begun.arrival.min())] if self._begun.size else []
        if self._begun.mark is not None and self._begun.mark.arrival:
            arrivals.append(self._begun.mark.arrival)
        return min(arrivals, default=None)


class ErrorPolicy:
    """Handles rows whose expressions fail: emits them with nulls, skips them, or fails the query."""

    __slots__ = ("_mode", "_operator")

    def __init__(self, mode: OnError, operator: Operator) -> None:
        self._mode = mode
        self._operator = operator

    def settle(self, batch: Batch, errors: RowErrors, columns: Mapping[str, Any]) -> Batch:
        """Return the batch with its computed columns, without the rows that are skipped."""
        result = batch.with_columns(columns, batch.mark)
        if not errors.count:
            return result
        self.record(errors)
        if self._mode is OnError.SKIP:
            return result.take((~errors.mask(batch.size)).nonzero()[0])
        return result

    def record(self, errors: RowErrors) -> None:
        """Count failed rows; raises QueryFailed with `on_error: fail`."""
        if not errors.count:
            return
        self._operator.counters["errors"] += errors.count
        if self._mode is OnError.FAIL:
            raise QueryFailed(
                f"operator {self._operator.name!r} met a row that cannot be computed: {errors.first}; "
                "the query asked for `on_error: fail`; correct the rows or the expression, "
                "or ask for `null` or `skip`"
            )

    @property
    def skips(self) -> bool:
        """Whether failed rows are skipped."""
        return self._mode is OnError.SKIP
