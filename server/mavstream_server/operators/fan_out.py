"""Fan-out: passes the batches of a shared pipeline on to its member queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from mavstream_protocol.schema import Schema
from mavstream_server.columns.batch import Batch, concatenate_batches
from mavstream_server.operators.operator import Operator
from mavstream_server.operators.output import Output
from mavstream_server.operators.queue import QueueAccount

_MAX_GATHERED = 16  # batches


class Branch(NamedTuple):
    """A member query that receives the batches of a shared pipeline."""

    last: Operator
    """The query's own last operator of the prefix: it is idle, and batches are emitted through it."""
    columns: tuple[str, ...] | None
    """The columns that the query receives; None for all columns of the shared batches."""
    account: QueueAccount
    """Rows and bytes in the query's queues."""
    room: int
    """The number of queued rows from which on the query counts as full."""

    @property
    def full(self) -> bool:
        """Whether the query's queues hold as many rows as they should."""
        return not self.account.has_room(self.room)


class FanOut(Output):
    """The root of a shared pipeline. All members get the same arrays: nothing is copied.

    Every batch costs each member a scheduling turn. Small batches are therefore gathered while the source
    has more to read: at most as many batches as there are members.
    """

    kind = "fan_out"

    def __init__(
        self,
        name: str,
        columns: tuple[str, ...],
        train: int,
        more: Callable[[], bool],
        gathers: Callable[[], None],
        crowded: Callable[[], None],
    ) -> None:
        """Create a fan-out without members.

        `train` is the number of rows from which on a batch is passed on at once; `more` returns whether
        more rows are expected soon. `gathers` is called when the first batch is held back: the caller must
        call `flush` soon, since it may be that no later row passes the prefix. `crowded` is called when the
        queues of a member are full.
        """
        super().__init__(name, columns, _NoSink(), _no_time)
        self._train = train
        self._more = more
        self._on_gathering = gathers
        self._on_crowded = crowded
        self._branches: list[Branch] = []
        self._full: set[Branch] = set()
        self.gathered: list[Batch] = []
        """Batches that are held back."""

    def add(self, branch: Branch) -> None:
        """Add a member, which receives all batches from now on; no batch may be held back at this point."""
        self._branches.append(branch)

    def remove(self, last: Operator) -> None:
        """Remove the member whose batches are emitted through the operator `last`."""
        self._branches = [branch for branch in self._branches if branch.last is not last]
        self._full = {branch for branch in self._full if branch.last is not last}

    def choose_watermarks(self) -> None:
        """Find out whether any member acts on watermarks; called when members change."""
        last = [branch.last for branch in self._branches]
        self.acts_on_watermarks = any(queue.takes_watermarks for one in last for queue in one.all_outputs)

    @property
    def crowded(self) -> bool:
        """Whether the queues of any member are full."""
        if self._full:
            self._full = {branch for branch in self._full if branch.full}
        return bool(self._full)

    def process(self, port: int, batch: Batch) -> None:
        """Pass the batch on to all members, or hold it back until there is more."""
        gathered, mark = self.gathered, batch.mark
        if mark is not None and mark.gap is not None:
            self.flush()  # the gap comes after the rows that were gathered
        gathered.append(batch)
        self.rows += batch.size
        if mark is not None and mark.end:
            self.ended = True
        if (
            self.ended
            or (mark is not None and mark.gap is not None)
            or len(gathered) >= min(_MAX_GATHERED, len(self._branches))
            or sum(one.size for one in gathered) >= self._train
            or not self._more()
        ):
            self.flush()
        elif len(gathered) == 1:
            self._on_gathering()

    def flush(self) -> None:
        """Pass on the batches that are held back, as one."""
        if self.gathered:
            batch = _joined(self.gathered)
            self.gathered.clear()
            self._emit_to_members(batch)

    def _emit_to_members(self, batch: Batch) -> None:
        narrowed: dict[tuple[str, ...], Batch] = {}
        filled = False
        for branch in self._branches:
            last, columns, account, room = branch
            narrow = batch
            if columns is not None and batch.size:
                found = narrowed.get(columns)
                narrow = narrowed[columns] = batch.narrowed(columns) if found is None else found
            last.emit(narrow)
            if not account.has_room(room):
                self._full.add(branch)
                filled = True
        if filled:
            self._on_crowded()

    @property
    def state_bytes(self) -> int:
        """Bytes of the batches that are held back."""
        return sum(batch.nbytes for batch in self.gathered)

    @property
    def oldest_held(self) -> int | None:
        """Earliest arrival (UTC, ns) of the rows that are held back, or None."""
        return min((int(batch.arrival.min()) for batch in self.gathered if batch.size), default=None)


def _joined(batches: list[Batch]) -> Batch:
    """Return one batch with the rows of all batches and the last mark, as one longer train would be.

    Earlier marks can be dropped: they only carry watermarks, and the last one is at least as far.
    """
    if len(batches) == 1:
        return batches[0]
    last = next((batch.mark for batch in reversed(batches) if batch.mark is not None), None)
    rows = [batch for batch in batches if batch.size]
    if not rows:
        return Batch({}, 0, batches[0].arrival, mark=last)
    joined = concatenate_batches(rows)
    return joined.with_columns(joined.columns, last)


class _NoSink:
    """The sink of a fan-out, which never appends to it."""

    offset = revision = 0

    def append(self, batch: Batch, now: int, positions: Sequence[int]) -> None:
        raise AssertionError("a fan-out has no answers")

    def change(self, schema: Schema) -> None:
        raise AssertionError("a fan-out has no answers")

    def restart(self, offset: int) -> None:
        raise AssertionError("a fan-out has no answers")


def _no_time() -> int:
    raise AssertionError("a fan-out asks for no time")
