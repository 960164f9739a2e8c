"""The operator: takes batches from its input queues, hands batches to its output queues."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from typing import Any

from mavstream_protocol.errors import MavstreamError
from mavstream_protocol.queries import OnError
from mavstream_server.columns.batch import Batch, Mark, mark_only
from mavstream_server.expressions import RowErrors
from mavstream_server.operators.progress import Progress
from mavstream_server.operators.queue import Queue

State = dict[str, Any]
"""What an operator saves: scalars, texts, arrays, columns and batches, in dicts and lists."""


class QueryFailed(MavstreamError):
    """A query cannot go on; the others are not concerned."""

    code = "query_failed"


class Operator(ABC):
    """An operator of a running query.

    It is driven from outside: `process` is called with one batch of one input at a time, in the order in
    which the batches stand in that input's queue. What it emits must not depend on how rows are cut into
    batches, nor on how the inputs take turns, but for the order of rows where the plan promises none.
    """

    kind: str
    """What plans call it; one class may serve several kinds, and several classes one."""

    def __init__(self, name: str, ports: int = 1) -> None:
        self.name = name
        self.inputs: list[Queue] = []
        self.outputs: list[Queue] = []
        self.progress = Progress(ports)
        self.counters: Counter[str] = Counter()
        """Rows that have no part in the answer, by reason: `late`, `missed`, `outside`, `errors`,
        `unmatched`, `unread`, `shed`; and windows that have none: `skipped_windows`."""
        self.rows_out = 0
        self.bytes_out = 0

    @property
    def all_outputs(self) -> list[Queue]:
        """The queues that it may emit to."""
        return self.outputs

    def count(self, reason: str, rows: int) -> None:
        """Count rows that have no part in the answer, if there are any."""
        if rows:
            self.counters[reason] += rows

    def attach(self, queue: Queue, output: str | None = None) -> None:
        """Let a queue have what is emitted from now on, of one output where there are several."""
        self.outputs.append(queue)

    def detach(self, queue: Queue) -> None:
        """Emit to a queue no more."""
        self.outputs.remove(queue)

    @abstractmethod
    def process(self, port: int, batch: Batch) -> None:
        """Work on a batch of the input `port`; results go out through `emit`."""

    def emit(self, batch: Batch) -> None:
        """Hand a batch to everyone above; one without rows and mark is not worth it."""
        if not batch.size and batch.mark is None:
            return
        self.rows_out += batch.size
        self.bytes_out += batch.nbytes
        for queue in self.outputs:
            queue.push(batch)

    def emit_mark(self, mark: Mark | None) -> None:
        """Hand on a mark without rows."""
        if mark is not None:
            self.emit(mark_only(mark))

    @property
    def state_bytes(self) -> int:
        """Bytes that the operator keeps between two calls."""
        return 0

    @property
    def oldest_held(self) -> int | None:
        """Lowest arrival of the rows that it keeps to hand them on later as they came, or None."""
        return None

    def agrees(self, other: Operator) -> bool:
        """Whether both, of nodes that do the same, would emit the same from now on if they got the same."""
        return self.progress.save() == other.progress.save()

    def save(self) -> State:
        """Return what must be kept to go on elsewhere."""
        return {"progress": self.progress.save(), "counters": dict(self.counters)}

    def load(self, state: State) -> None:
        """Take over what `save` of an operator of the same plan node returned."""
        self.progress.load(state["progress"])
        self.counters = Counter(state["counters"])


class ErrorPolicy:
    """What becomes of rows whose expressions fail: kept with nulls, skipped, or the end of the query."""

    __slots__ = ("_mode", "_operator")

    def __init__(self, mode: OnError, operator: Operator) -> None:
        self._mode = mode
        self._operator = operator

    def settle(self, batch: Batch, errors: RowErrors, columns: Mapping[str, Any]) -> Batch:
        """Return the batch with its computed columns, less the rows to be skipped."""
        result = batch.with_columns(columns, batch.mark)
        if not errors.count:
            return result
        self.record(errors)
        if self._mode is OnError.SKIP:
            return result.take((~errors.mask(batch.size)).nonzero()[0])
        return result

    def record(self, errors: RowErrors) -> None:
        """Count failed rows, or give up."""
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
        """Whether failed rows are dropped."""
        return self._mode is OnError.SKIP
