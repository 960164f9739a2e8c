"""Fan-out: hands what a shared prefix has worked out to the queries that share it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from mavstream_server.columns.batch import Batch, concatenate_batches
from mavstream_server.operators.operator import Operator
from mavstream_server.operators.output import Output
from mavstream_server.operators.queue import QueueAccount

_MOST_GATHERED = 16  # batches


class Branch(NamedTuple):
    """A query that reads the shared rows."""

    last: Operator
    """Its own last operator of the prefix, which stands by: what it would emit goes out through it."""
    columns: tuple[str, ...] | None
    """What it would emit; None for all that is shared."""
    account: QueueAccount
    """What waits in the query's queues,"""
    room: int
    """and how many rows may."""

    @property
    def full(self) -> bool:
        """Whether no more rows should come."""
        return self.account.rows >= self.room


class FanOut(Output):
    """The root of a shared prefix. The columns are the same arrays for all: nothing is copied.

    Every batch costs each of the queries a turn. So while more is there to be read, small ones are gathered:
    as many as there are queries, at most, which would all have had a turn for each of them.
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
        """`train` is the number of rows that are handed on at once, and `more` says whether more come soon.

        `gathers` is called when something is kept for the first time: whoever listens must call `flush` soon,
        since of the rows to come none may pass the prefix. `crowded` is called when a branch is without room.
        """
        super().__init__(name, columns, _Nowhere(), _no_time)
        self._train = train
        self._more = more
        self._gathers = gathers
        self._tell = crowded
        self._branches: list[Branch] = []
        self._full: set[Branch] = set()
        self.gathered: list[Batch] = []
        """Not handed on yet."""

    def add(self, branch: Branch) -> None:
        """Hand everything to one more from now on; nothing may be gathered."""
        self._branches.append(branch)

    def remove(self, last: Operator) -> None:
        """Hand nothing any more to the branch that goes out through an operator."""
        self._branches = [branch for branch in self._branches if branch.last is not last]
        self._full = {branch for branch in self._full if branch.last is not last}

    @property
    def crowded(self) -> bool:
        """Whether a branch has no room."""
        if self._full:
            self._full = {branch for branch in self._full if branch.full}
        return bool(self._full)

    def process(self, port: int, batch: Batch) -> None:
        """Hand the batch to all, or keep it until there is more."""
        gathered, mark = self.gathered, batch.mark
        if mark is not None and mark.gap is not None:
            self.flush()  # what is missing is missing behind the rows ahead of the mark
        gathered.append(batch)
        self.rows += batch.size
        if mark is not None and mark.end:
            self.ended = True
        if (
            self.ended
            or (mark is not None and mark.gap is not None)
            or len(gathered) >= min(_MOST_GATHERED, len(self._branches))
            or sum(one.size for one in gathered) >= self._train
            or not self._more()
        ):
            self.flush()
        elif len(gathered) == 1:
            self._gathers()

    def flush(self) -> None:
        """Hand on what was gathered."""
        if self.gathered:
            batch = _joined(self.gathered)
            self.gathered.clear()
            self._hand_on(batch)

    def _hand_on(self, batch: Batch) -> None:
        narrowed: dict[tuple[str, ...], Batch] = {}
        filled = False
        for branch in self._branches:
            last, columns, account, room = branch
            part = batch
            if columns is not None and batch.size:
                found = narrowed.get(columns)
                part = narrowed[columns] = batch.narrowed(columns) if found is None else found
            last.emit(part)
            if account.rows >= room:
                self._full.add(branch)
                filled = True
        if filled:
            self._tell()

    @property
    def state_bytes(self) -> int:
        """Bytes of what was gathered."""
        return sum(batch.nbytes for batch in self.gathered)

    @property
    def oldest_held(self) -> int | None:
        """Lowest arrival of the rows that were gathered, or None."""
        return min((int(batch.arrival.min()) for batch in self.gathered if batch.size), default=None)


def _joined(batches: list[Batch]) -> Batch:
    """Return one batch with the rows of all and the last mark, as a longer train would have been.

    Marks in between only tell what the last one tells, too: how far time has come.
    """
    if len(batches) == 1:
        return batches[0]
    last = next((batch.mark for batch in reversed(batches) if batch.mark is not None), None)
    rows = [batch for batch in batches if batch.size]
    if not rows:
        return Batch({}, 0, batches[0].arrival, mark=last)
    joined = concatenate_batches(rows)
    return joined.with_columns(joined.columns, last)


class _Nowhere:
    """A sink for an output that hands nothing to one."""

    offset = 0

    def append(self, batch: Batch, now: int) -> None:
        raise AssertionError("a fan-out has no answers")

    def restart(self, offset: int) -> None:
        raise AssertionError("a fan-out has no answers")


def _no_time() -> int:
    raise AssertionError("a fan-out asks for no time")
