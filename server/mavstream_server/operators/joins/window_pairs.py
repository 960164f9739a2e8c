"""Window pairs: the base of operators that combine the rows of two inputs in the same window."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np

from mavstream_protocol.plans.windows import RowWindow, TimeWindow
from mavstream_server.columns.batch import BEGIN_OF_TIME, Batch, Mark
from mavstream_server.columns.pieces import Steps
from mavstream_server.operators.operator import State
from mavstream_server.operators.windows.gate import Admitted
from mavstream_server.operators.windows.pane_buffer import PaneBuffer, rows_of
from mavstream_server.operators.windows.windowed import Skipped, WindowedOperator, effective_times


class WindowPairs(WindowedOperator):
    """Buffers both inputs and answers a window from its left and right rows when both are complete."""

    def __init__(
        self,
        name: str,
        columns: tuple[Sequence[str], Sequence[str]],
        window: TimeWindow | RowWindow,
        once: bool,
    ) -> None:
        super().__init__(name, 2, window, once)
        self._columns = columns
        self._sides = (PaneBuffer(self.windows), PaneBuffer(self.windows))
        self._next = BEGIN_OF_TIME  # windows before it were answered
        self._answered = 0

    @abstractmethod
    def answer(self, number: int, left: Batch, right: Batch | None) -> Iterator[Batch | None]:
        """Yield the answer for a window that has left rows, and None where a step ends.

        The caller sets the arrival times.
        """

    def hand_on(self, result: Batch) -> None:
        """Number and emit rows of an answer."""
        result.position = np.arange(self._answered, self._answered + result.size)
        self._answered += result.size
        self.emit(result)

    def fold(self, port: int, batch: Batch, admitted: Admitted) -> Steps[None]:
        """Buffer the admitted rows of one input."""
        rows = rows_of(batch, admitted.rows)
        columns = {name: rows.columns[name] for name in self._columns[port]}
        kept = rows.with_columns(columns, None)
        if not self.windows.by_time:
            kept.time = effective_times(rows)
        kept.row_watermark = None
        if kept.position is None:
            gate = self.gates[port]
            first = gate.count - batch.size
            kept.position = np.arange(first, gate.count) if admitted.rows is None else first + admitted.rows
        self._sides[port].add(kept, admitted)
        yield from ()

    def close(self, opened: int, batch: Batch, mark: Mark | None) -> Iterator[None]:
        """Answer all windows before `opened` in order, except those without left rows."""
        while (number := self._next_window()) is not None and number < opened:
            self._next = number + 1
            left = yield from self._sides[0].rows(number)
            right = yield from self._sides[1].rows(number)
            if left is None:
                continue
            for result in self.answer(number, left, right):
                if result is not None:
                    result.arrival = np.full(result.size, self._possible_since(left, right, mark))
                    self.hand_on(result)
                yield
        self._next = max(self._next, opened)  # drop rows of closed windows, even if there were no left rows
        self._next_window()

    def _possible_since(self, left: Batch, right: Batch | None, mark: Mark | None) -> int:
        """Return the arrival (UTC, ns) of what completed the window: the mark, or the last of its rows."""
        if self.windows.by_time:
            assert mark is not None
            return mark.arrival
        return max(int(rows.arrival.max()) for rows in (left, right) if rows is not None)

    def _next_window(self) -> int | None:
        """Drop rows of answered windows; returns the first open window that has left rows, or None."""
        if self._next != BEGIN_OF_TIME:
            for side in self._sides:
                side.drop_before(self.windows.first_pane(self._next))
        lowest = self._sides[0].lowest
        return None if lowest is None else max(self.windows.first_of_pane(lowest), self._next)

    def settled(self, watermark: int) -> int:
        """Return the watermark, held back for windows by rows to the earliest buffered row."""
        if self.windows.by_time:
            return watermark
        times = [side.earliest for side in self._sides]
        return min([watermark, *(time for time in times if time is not None)])

    def skip(self, first: int) -> Skipped:
        """Drop the rows that only windows before `first` need."""
        number, highest = self._next_window(), self._sides[0].highest
        unanswered, self._next = self._next, max(self._next, first)
        pane = self.windows.first_pane(first)
        rows = sum(
            side.rows_before(pane, unanswered, gate.first_window)
            for side, gate in zip(self._sides, self.gates, strict=True)
        )
        for side in self._sides:
            side.drop_before(pane)
        if number is None or highest is None:
            return Skipped(0, rows)
        return Skipped(max(0, min(self.windows.last_of_pane(highest) + 1, first) - number), rows)

    def clear(self) -> None:
        """Drop all rows."""
        self._sides = (PaneBuffer(self.windows), PaneBuffer(self.windows))

    def bounds(self, number: int) -> dict[str, int]:
        """Return the bounds of a window, which every windowed operator adds as columns."""
        return {"window_start": self.windows.start(number), "window_end": self.windows.end(number)}

    @property
    def state_bytes(self) -> int:
        """Bytes of the buffered rows."""
        return sum(side.nbytes for side in self._sides)

    def save(self) -> State:
        """Return the buffered rows for a snapshot."""
        sides = [side.save() for side in self._sides]
        return {**super().save(), "sides": sides, "next": self._next, "answered": self._answered}

    def load(self, state: State) -> None:
        """Restore the buffered rows from a snapshot."""
        super().load(state)
        for side, saved in zip(self._sides, state["sides"], strict=True):
            side.load(saved)
        self._next, self._answered = state["next"], state["answered"]
