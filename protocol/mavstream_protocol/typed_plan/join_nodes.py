"""Joins: of two streams, and of a stream with a stored table."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence, Set
from dataclasses import dataclass

from mavstream_protocol.expressions.typed import Expression, distinct, references
from mavstream_protocol.plans.plan import Within
from mavstream_protocol.plans.windows import RowWindow, TimeWindow
from mavstream_protocol.schema import Schema
from mavstream_protocol.typed_plan.node import TableLookup, TypedNode
from mavstream_protocol.typed_plan.window_nodes import latest_in_window

__all__ = ["TypedJoin", "TypedTableJoin"]

_SIDES = ("l.", "r.")


@dataclass(frozen=True, slots=True)
class TypedJoin(TypedNode):
    """Join of two streams; exactly one of `within` and `window` is given."""

    on: tuple[tuple[str, str], ...]
    within: Within | None
    window: TimeWindow | RowWindow | None
    where: Expression | None
    compute: tuple[tuple[str, Expression], ...]
    ordered: bool

    op = "join"
    sides = _SIDES
    makes_rows = True
    stateful = True
    waits_for_time = True
    keeps_times = True  # a pair has the time of its later row
    emits_all_columns = True
    computes_on_demand = False
    passes_columns = False
    commutes_with_select = False  # parts of it do: see the rules about joins

    @property
    def order_sensitive(self) -> bool:
        """Membership in a window by rows depends on their order."""
        return self.counts_rows

    def gives_order(self, inputs: Sequence[bool]) -> bool:
        """Pairs are found as the sides alternate, unless they are put in order."""
        return self.ordered

    @property
    def windowed_by(self) -> TimeWindow | RowWindow | None:
        """Its window, unless it pairs rows that are near in time."""
        return self.window

    @property
    def near(self) -> Within | None:
        """Its reach, unless it pairs the rows of a window."""
        return self.within

    @property
    def needs_position(self) -> bool:
        """Pairs are put in order by the positions of their rows."""
        return self.ordered

    def latest_answer(self, time: int) -> int:
        """A pair has the later time of its two rows."""
        if self.window is not None:
            return latest_in_window(self.window, time)
        assert self.within is not None
        return time + max(self.within.before, self.within.after)

    def reads(self, index: int, wanted: Set[str]) -> set[str]:
        """Keys, and the columns of that side in conditions and outputs: all columns are computed."""
        return {pair[index] for pair in self.on} | self.paired_columns(index)

    def paired_columns(self, index: int) -> set[str]:
        """Return the columns of one side that pairs contain, excluding keys."""
        return _read_of((e for _, e in self.compute), self.where, index)

    @property
    def row_columns(self) -> tuple[tuple[str, Expression], ...]:
        """All but those of the window."""
        return self.compute

    def shareable(self, in_order: bool) -> bool:
        """Not shareable: it has two inputs."""
        return False


@dataclass(frozen=True, slots=True)
class TypedTableJoin(TypedNode):
    """Rows of the only input, each with the rows of a table's version that have the same keys."""

    table: str
    table_schema: Schema
    on: tuple[tuple[str, str], ...]
    outer: bool
    """Whether rows without a match are emitted, too."""
    where: Expression | None
    """Part of the join condition, like the keys: it determines the matches."""
    compute: tuple[tuple[str, Expression], ...]

    op = "join"
    sides = _SIDES
    makes_rows = True
    stateful = False
    order_sensitive = False
    windowed_by = None
    needs_position = False
    waits_for_time = False
    keeps_times = True
    emits_all_columns = False
    computes_on_demand = True
    passes_columns = False
    commutes_with_select = False  # parts of it do: see the rules about joins

    def gives_order(self, inputs: Sequence[bool]) -> bool:
        """Rows retain their order, and matches have that of the table."""
        return inputs[0]

    def latest_answer(self, time: int) -> int:
        """Rows retain their time."""
        return time

    def reads(self, index: int, wanted: Set[str]) -> set[str]:
        """Keys, and the columns of the row in the condition and the requested outputs."""
        computed = (expression for column, expression in self.compute if column in wanted)
        return {left for left, _ in self.on} | _read_of(computed, self.where, 0)

    @property
    def row_columns(self) -> tuple[tuple[str, Expression], ...]:
        """All of its columns."""
        return self.compute

    @property
    def lookup(self) -> TableLookup:
        """Its table."""
        return TableLookup(self.table, tuple(right for _, right in self.on), self.table_schema, self.outer)

    def shareable(self, in_order: bool) -> bool:
        """Its rows are numbered from its start, which is visible where rows are ordered by position."""
        return not in_order

    def signature(self, wanted: Set[str]) -> tuple[Hashable, ...]:
        """Only the computed columns: an error in a column that a query does not read must not affect it."""
        compute = tuple(column for column in self.compute if column[0] in wanted)
        said = (self.table, self.table_schema, self.on, self.outer, self.where, compute)
        return type(self).__name__, *said


def _read_of(computed: Iterable[Expression], where: Expression | None, index: int) -> set[str]:
    """Return the columns of one side that expressions over pairs read."""
    prefix = _SIDES[index]
    read = computed if where is None else (*computed, where)
    names = {name for one in distinct(read) for name in references(one) if name.startswith(prefix)}
    return {name.removeprefix(prefix) for name in names}
