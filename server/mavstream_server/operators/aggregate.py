"""Aggregate: emits one row per group when a window closes, with aggregates over the group's rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mavstream_protocol.expressions.typed import AggregateExpression
from mavstream_protocol.plans.windows import RowWindow, TimeWindow
from mavstream_protocol.queries import OnError
from mavstream_protocol.schema import FieldType
from mavstream_server.columns.batch import Batch, Mark
from mavstream_server.columns.column import Column, Ints
from mavstream_server.columns.keys import KeyCoder, distinct_codes
from mavstream_server.columns.pieces import Steps, one_after_other, ordered
from mavstream_server.expressions import RowErrors, compile_expression
from mavstream_server.operators.aggregates.accumulator import Accumulator
from mavstream_server.operators.aggregates.calls import CallState
from mavstream_server.operators.aggregates.groups import Groups
from mavstream_server.operators.aggregates.picks import IntMaximum, IntMinimum
from mavstream_server.operators.aggregates.windows import (
    OverlappingWindows,
    Rows,
    SeparateWindows,
    WindowGroups,
)
from mavstream_server.operators.operator import ErrorPolicy, State
from mavstream_server.operators.windows.gate import Admitted
from mavstream_server.operators.windows.windowed import (
    Skipped,
    WindowedOperator,
    effective_times,
    possible_since,
)

GROUPS_AT_ONCE = 1024  # groups that are answered in one step


class Aggregate(WindowedOperator):
    """Folds rows into the groups of open windows.

    Windows without rows are not answered. Groups are emitted in the order of their first rows. Rows that are
    not `ordered` may come in another order when they are read again; results are the same then, too.
    """

    kind = "aggregate"

    def __init__(
        self,
        name: str,
        by: Sequence[tuple[str, FieldType]],
        window: TimeWindow | RowWindow,
        compute: Sequence[tuple[str, AggregateExpression]],
        on_error: OnError,
        once: bool = False,
        *,
        ordered: bool = True,
    ) -> None:
        super().__init__(name, 1, window, once)
        self._by = tuple(column for column, _ in by)
        self._key_types = [type_ for _, type_ in by]
        self._errors = ErrorPolicy(on_error, self)
        calls = list(dict.fromkeys(call for _, expression in compute for call in expression.calls))
        self._called = list(dict.fromkeys(call.state for call in calls))
        self._asked = [(call, self._called.index(call.state)) for call in calls]
        self._ordered = ordered
        self.clear()
        self._numbered = self.windows.overlapping or any(call.ordered for call in self._calls)
        # An expression numbers its own calls; map these numbers to indexes into the calls of all expressions.
        self._results = [
            (
                column,
                compile_expression(expression.result),
                {f"#{number}": calls.index(call) for number, call in enumerate(expression.calls)},
            )
            for column, expression in compute
        ]
        self._answered = 0

    def clear(self) -> None:
        """Drop all groups and keys."""
        self._keys = KeyCoder(self._key_types)
        self._calls = [CallState(call, self._ordered) for call in self._called]
        self._coded = [(number, call) for number, call in enumerate(self._calls) if call.coder is not None]
        self._groups: WindowGroups = self._no_groups()

    def _no_groups(self) -> WindowGroups:
        if self.windows.overlapping:
            return OverlappingWindows(self.windows, self._make)
        return SeparateWindows(self._make)

    def _make(self) -> list[Accumulator]:
        """Return accumulators for the calls, followed by those that answers need internally."""
        return [*(call.make() for call in self._calls), *self._own_accumulators()]

    def _own_accumulators(self) -> Iterator[Accumulator]:
        if self.windows.overlapping:
            yield IntMinimum()  # first row: panes are merged by time, not in stream order
        if not self.windows.by_time:
            yield IntMaximum()  # latest time: the time of the answer

    def _own_columns(self, batch: Batch, ordinals: Ints | None) -> Iterator[Column]:
        """Yield the input of these accumulators."""
        if self.windows.overlapping:
            assert ordinals is not None
            yield Column(ordinals)
        if not self.windows.by_time:
            yield Column(effective_times(batch))

    def steps(self, port: int, batch: Batch) -> Iterator[None]:
        """Fold the rows into their groups, then answer the windows that are complete."""
        yield from super().steps(port, batch)
        if batch.mark is not None:
            yield from self._compact()

    def fold(self, port: int, batch: Batch, admitted: Admitted) -> Steps[None]:
        """Add rows to the groups of their panes."""
        ordinals = None
        if self._numbered:
            ordinals = np.arange(self.gates[0].count - batch.size, self.gates[0].count)
        if admitted.rows is not None:
            batch = batch.take(admitted.rows)
            ordinals = None if ordinals is None else ordinals.take(admitted.rows)
        errors = RowErrors()
        columns = yield from one_after_other(
            call.column(batch.columns, batch.size, errors) for call in self._calls
        )
        columns += self._own_columns(batch, ordinals)
        codes = yield from self._keys.encoding([batch.columns[column] for column in self._by], batch.size)
        rows = Rows(codes, self._keys.count, columns, ordinals)
        panes, firsts = admitted.panes, admitted.firsts
        if errors.first is not None:
            self._errors.record(errors)
            if self._errors.skips:
                kept = np.flatnonzero(~errors.mask(batch.size))
                rows, panes = rows.take(kept), panes.take(kept)
                firsts = None if firsts is None else firsts.take(kept)
        yield from self._groups.fold(panes, firsts, rows)

    def close(self, opened: int, batch: Batch, mark: Mark | None) -> Iterator[None]:
        """Answer all windows before `opened`, with one row per group."""
        for closed in self._groups.close(opened, self._keys.count):
            if closed is None:
                yield
            else:
                yield from self._answers(*closed, batch, mark)

    def skip(self, first: int) -> Skipped:
        """Drop the groups of the windows before `first`."""
        return Skipped(*self._groups.skip(first, self._keys.count))

    def _answers(self, numbers: Ints, groups: Groups, batch: Batch, mark: Mark | None) -> Iterator[None]:
        """Emit one row per group, in steps; `numbers` are the windows of the groups."""
        if self.windows.overlapping:
            firsts = groups.accumulators[len(self._calls)].result().values
            order = yield from ordered(firsts)
            groups = yield from groups.answering(order)
        first = 0
        for part in (yield from groups.dividing(GROUPS_AT_ONCE)):
            self._answer(numbers[first : first + GROUPS_AT_ONCE], part, batch, mark)
            first += GROUPS_AT_ONCE
            yield

    def _answer(self, numbers: Ints, groups: Groups, batch: Batch, mark: Mark | None) -> None:
        ends = self.windows.ends(numbers)
        if self.windows.by_time:
            assert mark is not None
            times, arrival = ends - 1, possible_since(ends, batch, mark)
        else:
            times = groups.accumulators[-1].result().values
            closing = ends - 1 - (self.gates[0].count - batch.size)  # the row that filled the window
            arrival = batch.arrival.take(closing)
        self._emit_groups(groups, (self.windows.starts(numbers), ends), times, arrival)

    def _emit_groups(self, groups: Groups, bounds: tuple[Ints, Ints], times: Ints, arrival: Ints) -> None:
        """Emit one row per group, in windows with the given bounds."""
        size = len(groups)
        keys = dict(zip(self._by, self._keys.columns(groups.codes), strict=True))
        calls = [
            self._calls[number].result(groups.accumulators[number], call) for call, number in self._asked
        ]
        errors = RowErrors()
        columns = dict(keys)
        for column, evaluate, indexes in self._results:
            given = keys | {name: calls[index] for name, index in indexes.items()}
            columns[column] = evaluate(given, size, errors)
        columns["window_start"], columns["window_end"] = (Column(bound) for bound in bounds)
        positions = np.arange(self._answered, self._answered + size)
        self._answered += size
        result = Batch({}, size, arrival, time=times, position=positions)
        self.emit(self._errors.settle(result, errors, columns))

    def settled(self, watermark: int) -> int:
        """Return the watermark, held back to the rows of windows by rows that are still open."""
        if self.windows.by_time:
            return watermark
        latest = [accumulators[-1] for accumulators in self._groups.accumulators()]
        return min([watermark, *(int(a.arrays["value"][: a.size].min()) for a in latest if a.size)])

    def _compact(self) -> Iterator[None]:
        """Drop keys that no group uses any more, and values that no accumulator uses, in steps."""
        if self._keys.worth_compacting():
            live = yield from distinct_codes(self._groups.live_codes(), self._keys.count)
            mapping = yield from self._keys.compact(live)
            if mapping is not None:
                yield from self._groups.recode(mapping)
        for number, call in self._coded:
            assert call.coder is not None
            if not call.coder.worth_compacting():
                continue
            accumulators = [held[number] for held in self._groups.accumulators()]
            codes = [codes for a in accumulators if (codes := a.held_codes()) is not None]
            null = np.zeros(1, dtype=np.int64)
            live = yield from distinct_codes([null, *codes], call.coder.count)
            mapping = yield from call.coder.compact(live)
            if mapping is not None:
                for accumulator in accumulators:
                    yield from accumulator.recode(mapping)

    @property
    def state_bytes(self) -> int:
        """Bytes of groups and keys."""
        coders = sum(call.coder.nbytes for call in self._calls if call.coder is not None)
        return self._groups.nbytes + self._keys.nbytes + coders

    def save(self) -> State:
        """Return groups, keys and the progress of the windows."""
        return {
            **super().save(),
            "keys": self._keys.save(),
            "values": [None if call.coder is None else call.coder.save() for call in self._calls],
            "groups": self._groups.save(),
            "answered": self._answered,
        }

    def load(self, state: State) -> None:
        """Restore groups, keys and the progress of the windows."""
        super().load(state)
        self._keys.load(state["keys"])
        for call, saved in zip(self._calls, state["values"], strict=True):
            if call.coder is not None:
                call.coder.load(saved)
        self._groups.load(state["groups"])
        self._answered = state["answered"]
