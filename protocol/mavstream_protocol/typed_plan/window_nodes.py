"""Nodes that answer at the close of windows: aggregate, distinct and except."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence, Set
from dataclasses import dataclass

from mavstream_protocol.expressions.typed import AggregateExpression, ColumnRef, Expression, references
from mavstream_protocol.plans.windows import RowWindow, SessionWindow, TimeWindow
from mavstream_protocol.typed_plan.node import TypedNode

__all__ = [
    "ORDER_SENSITIVE",
    "WINDOW_COLUMNS",
    "TypedAggregate",
    "TypedDistinct",
    "TypedExcept",
    "TypedSessions",
    "latest_in_window",
]

ORDER_SENSITIVE = frozenset({"first", "last"})
"""Aggregate functions whose result depends on the order of the rows."""
WINDOW_COLUMNS = ("window_start", "window_end")
"""The columns that a windowed node adds."""

Computed = tuple[tuple[str, AggregateExpression], ...]
"""The columns that an aggregate computes, by name."""

_FOR_EVER = (1 << 63) - 1


def latest_in_window(window: TimeWindow | RowWindow, time: int) -> int:
    """Return the latest time of an answer of windows that rows up to a time are in (us)."""
    # Windows by rows answer with the time of their latest row.
    return max(time, window.last_end(time) - 1) if isinstance(window, TimeWindow) else time


@dataclass(frozen=True, slots=True)
class _WindowedNode(TypedNode):
    """Stores the rows of open windows and emits new rows when a window closes."""

    window: TimeWindow | RowWindow

    makes_rows = True
    stateful = True
    needs_position = False
    keeps_times = False
    emits_all_columns = True
    computes_on_demand = False
    passes_columns = False

    @property
    def order_sensitive(self) -> bool:
        """Membership in a window by rows depends on their order."""
        return isinstance(self.window, RowWindow)

    def gives_order(self, inputs: Sequence[bool]) -> bool:
        """Answers are in the order of the (left) rows that they stem from."""
        return inputs[0]

    @property
    def windowed_by(self) -> TimeWindow | RowWindow:
        """Its window."""
        return self.window

    @property
    def waits_for_time(self) -> bool:
        """Windows by time close when the watermark passes their end."""
        return isinstance(self.window, TimeWindow)

    def latest_answer(self, time: int) -> int:
        """Answers have the time of their window's end."""
        return latest_in_window(self.window, time)

    def shareable(self, in_order: bool) -> bool:
        """Windows by rows begin with the query, partial ones are cut by it; answers are numbered by it."""
        return isinstance(self.window, TimeWindow) and not self.window.partial and not in_order


@dataclass(frozen=True, slots=True)
class TypedExcept(_WindowedNode):
    """Emits left rows without an equal right row, per window."""

    op = "except"
    commutes_with_select = False
    row_columns = ()

    def reads(self, index: int, wanted: Set[str]) -> set[str]:
        """Whole rows: they are compared."""
        return set(self.schema.names) - set(WINDOW_COLUMNS)

    def signature(self, wanted: Set[str]) -> tuple[Hashable, ...]:
        """Its window and the columns that are compared: a stream can get more."""
        return type(self).__name__, self.window, self.schema.names

    def shareable(self, in_order: bool) -> bool:
        """Not shareable: it has two inputs."""
        return False


@dataclass(frozen=True, slots=True)
class TypedAggregate(_WindowedNode):
    """Aggregates per window and group."""

    op = "aggregate"
    commutes_with_select = False
    row_columns = ()
    by: tuple[str, ...]
    compute: Computed
    scaled: bool = False
    """Whether columns are pairs of a value and its error that compensate for shed rows."""

    @property
    def order_sensitive(self) -> bool:
        """Windows by rows, `first` and `last` are."""
        calls = (call for _, expression in self.compute for call in expression.calls)
        return self.counts_rows or any(call.function in ORDER_SENSITIVE for call in calls)

    def gives_order(self, inputs: Sequence[bool]) -> bool:
        """Groups are in the order of their first rows; without `by` there is only one per window."""
        return inputs[0] or not self.by

    def reads(self, index: int, wanted: Set[str]) -> set[str]:
        """Keys and arguments: all columns are computed, independent of the requested ones."""
        return {*self.by, *(name for argument in _arguments(self.compute) for name in references(argument))}

    def computed(self) -> Iterator[Expression]:
        """Yield arguments and results."""
        return _computed(self.compute)


@dataclass(frozen=True, slots=True)
class TypedSessions(TypedNode):
    """Aggregates per session of a group."""

    op = "aggregate"
    makes_rows = True
    stateful = True
    waits_for_time = True
    needs_position = False
    keeps_times = False
    emits_all_columns = True
    computes_on_demand = False
    passes_columns = False
    commutes_with_select = False
    row_columns = ()
    window: SessionWindow
    by: tuple[str, ...]
    compute: Computed

    @property
    def windowed_by(self) -> SessionWindow:
        """Its window."""
        return self.window

    @property
    def order_sensitive(self) -> bool:
        """`first` and `last` are."""
        return any(call.function in ORDER_SENSITIVE for _, each in self.compute for call in each.calls)

    def gives_order(self, inputs: Sequence[bool]) -> bool:
        """Sessions are in the order of their last times, then of their first rows."""
        return inputs[0] or not self.by

    def latest_answer(self, time: int) -> int:
        """No time is late enough: a session has no longest length."""
        return _FOR_EVER

    def reads(self, index: int, wanted: Set[str]) -> set[str]:
        """Keys and arguments, as of any aggregate."""
        return {*self.by, *(name for argument in _arguments(self.compute) for name in references(argument))}

    def computed(self) -> Iterator[Expression]:
        """Yield arguments and results."""
        return _computed(self.compute)

    def shareable(self, in_order: bool) -> bool:
        """Not shareable: a session that began before a query did may never end."""
        return False


def _computed(compute: Computed) -> Iterator[Expression]:
    yield from (expression.result for _, expression in compute)
    yield from _arguments(compute)


def _arguments(compute: Computed) -> Iterator[Expression]:
    for _, expression in compute:
        yield from (call.argument for call in expression.calls if call.argument is not None)


@dataclass(frozen=True, slots=True)
class TypedDistinct(_WindowedNode):
    """The rows that differ from those before them, per window."""

    op = "distinct"

    @property
    def commutes_with_select(self) -> bool:
        """Equal rows pass a select together; windows by rows count those that do not, too."""
        return isinstance(self.window, TimeWindow)

    @property
    def row_columns(self) -> tuple[tuple[str, Expression], ...]:
        """The columns of its input, unchanged."""
        fields = (field for field in self.schema if field.name not in WINDOW_COLUMNS)
        return tuple((field.name, ColumnRef(field.name, field.type, field.nullable)) for field in fields)

    def reads(self, index: int, wanted: Set[str]) -> set[str]:
        """Whole rows: they are compared."""
        return set(self.schema.names) - set(WINDOW_COLUMNS)

    def signature(self, wanted: Set[str]) -> tuple[Hashable, ...]:
        """Its window and the columns that are compared: a stream can get more."""
        return type(self).__name__, self.window, self.schema.names

    @property
    def runs_as(self) -> TypedAggregate:
        """An aggregate that groups by all columns and computes none."""
        by = tuple(name for name in self.schema.names if name not in WINDOW_COLUMNS)
        return TypedAggregate(self.name, self.inputs, self.schema, self.window, by, ())
