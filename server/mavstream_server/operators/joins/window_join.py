"""Window join: emits pairs of rows with equal keys in the same window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mavstream_protocol.expressions.typed import Expression
from mavstream_protocol.plans.windows import RowWindow, TimeWindow
from mavstream_protocol.queries import OnError
from mavstream_protocol.schema import FieldType
from mavstream_server.columns.batch import BEGIN_OF_TIME, Batch, Mark
from mavstream_server.columns.column import Ints
from mavstream_server.columns.keys import KeyCoder
from mavstream_server.operators.joins.pair_output import PairOutput
from mavstream_server.operators.joins.sorted_run import SortedRun, with_keys
from mavstream_server.operators.joins.window_pairs import WindowPairs
from mavstream_server.operators.operator import State
from mavstream_server.operators.time_order import TimeOrder


class WindowJoin(WindowPairs):
    """Answers each window with its pairs; a pair is emitted once per window that both rows are in."""

    kind = "join"

    def __init__(
        self,
        name: str,
        keys: Sequence[tuple[str, str, FieldType]],
        columns: tuple[Sequence[str], Sequence[str]],
        window: TimeWindow | RowWindow,
        where: Expression | None,
        compute: Sequence[tuple[str, Expression]],
        ordered: bool,
        on_error: OnError,
        once: bool = False,
    ) -> None:
        super().__init__(name, columns, window, once)
        self._left_keys = [left for left, _, _ in keys]
        self._right_keys = [right for _, right, _ in keys]
        self._types = [type_ for _, _, type_ in keys]
        self._pairs = PairOutput(where, compute, on_error, self)
        self._order = TimeOrder() if ordered else None
        self._minor: Ints  # positions of the right rows of the current pairs

    def answer(self, number: int, left: Batch, right: Batch | None) -> Iterator[Batch | None]:
        """Yield the pairs of a window."""
        if right is None:
            return
        left = yield from with_keys(left, self._left_keys)
        right = yield from with_keys(right, self._right_keys)
        if not left.size or not right.size:
            return
        coder = KeyCoder(self._types)
        wanted = yield from coder.encoding([left.columns[key] for key in self._left_keys], left.size)
        present = yield from coder.encoding([right.columns[key] for key in self._right_keys], right.size)
        asking = yield from SortedRun.building(left, wanted)
        run = yield from SortedRun.building(right, present)
        for pairs in run.partners(asking):
            if pairs is None:
                yield None
                continue
            joined = self._pairs.rows(asking.rows, run.rows, *pairs, self.bounds(number))
            if joined is not None:
                self._minor = joined[1]
                yield joined[0]

    def hand_on(self, result: Batch) -> None:
        """Emit pairs, or hold them back if they must be in order: windows that overlap go back in time."""
        if self._order is None:
            super().hand_on(result)
        else:
            self._order.add(result, self._next, self._minor)

    def conclude(self, mark: Mark) -> Iterator[None]:
        """Emit a mark, after the pairs that were held back until it."""
        if self._order is None:
            yield from super().conclude(mark)
            return
        for ready in self._order.releasing(mark):
            if ready is not None:
                self.emit(ready)
            yield

    def settled(self, watermark: int) -> int:
        """Return the watermark, held back to the first open window: pairs have the times of their rows."""
        if not self.windows.by_time or watermark == BEGIN_OF_TIME:
            return super().settled(watermark)
        return min(watermark, self.windows.start(self.windows.first_open(watermark)))

    def first_answer(self, window: int) -> int:
        """Return the start of the window: pairs have the times of their rows."""
        return self.windows.start(window)

    @property
    def state_bytes(self) -> int:
        """Bytes of the buffered rows and pairs."""
        return super().state_bytes + (0 if self._order is None else self._order.nbytes)

    def save(self) -> State:
        """Return the buffered rows and pairs for a snapshot."""
        return {**super().save(), "order": None if self._order is None else self._order.save()}

    def load(self, state: State) -> None:
        """Restore the buffered rows and pairs from a snapshot."""
        super().load(state)
        if self._order is not None:
            self._order.load(state["order"])
