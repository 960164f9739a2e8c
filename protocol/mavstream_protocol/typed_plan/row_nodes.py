"""Leaves of plans, and nodes that hand rows on: select, project, split and union."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence, Set
from dataclasses import dataclass, replace

from mavstream_protocol.expressions.typed import ColumnRef, Expression, distinct, references
from mavstream_protocol.schema import Field, Schema
from mavstream_protocol.typed_plan.node import TypedNode

__all__ = ["TypedProject", "TypedSelect", "TypedSource", "TypedSplit", "TypedTable", "TypedUnion"]


@dataclass(frozen=True, slots=True)
class _PassingNode(TypedNode):
    """Hands on rows of its inputs."""

    makes_rows = False
    order_sensitive = False
    windowed_by = None
    keeps_times = True

    def latest_answer(self, time: int) -> int:
        """Rows retain their time."""
        return time


@dataclass(frozen=True, slots=True)
class _StatelessNode(_PassingNode):
    """A node without state that emits rows in the order of its input."""

    stateful = False
    needs_position = False
    waits_for_time = False

    def gives_order(self, inputs: Sequence[bool]) -> bool:
        """Rows retain their order; those of a leaf are in stream order."""
        return all(inputs)


@dataclass(frozen=True, slots=True)
class _Leaf(_StatelessNode):
    """Reads no other node."""

    emits_all_columns = True  # the columns that are requested, which may change while it runs
    computes_on_demand = False
    passes_columns = False
    row_columns = ()
    commutes_with_select = False

    def reads(self, index: int, wanted: Set[str]) -> set[str]:
        """Never called: there is no input."""
        return set()

    def shareable(self, in_order: bool) -> bool:
        """Not shareable by itself: every shared prefix begins with a source."""
        return False


@dataclass(frozen=True, slots=True)
class TypedSource(_Leaf):
    """Rows of a stream, or results of another query, which are read alike."""

    op = "source"
    stream: str
    """The name of the stream, or of the query."""
    event_time: str | None
    query: str | None = None
    """The id of the query whose results it reads; None for a stream."""
    in_order: bool = True
    """Whether the order of the rows depends on the logs alone: always for a stream."""

    def gives_order(self, inputs: Sequence[bool]) -> bool:
        """Rows of a stream are in its order, results in the order that their query gives them."""
        return self.in_order


@dataclass(frozen=True, slots=True)
class TypedTable(_Leaf):
    """A stored table; it has no operator, because its join reads it."""

    op = "table"
    has_operator = False
    table: str


@dataclass(frozen=True, slots=True)
class TypedSelect(_StatelessNode):
    """Passes rows for which `where` is true."""

    op = "select"
    emits_all_columns = False
    computes_on_demand = False
    passes_columns = True
    row_columns = ()
    commutes_with_select = True
    where: Expression

    def reads(self, index: int, wanted: Set[str]) -> set[str]:
        """The requested columns, and those of the predicate."""
        return {*wanted, *references(self.where)}

    @property
    def predicate(self) -> Expression:
        """The condition that rows must pass."""
        return self.where

    def shareable(self, in_order: bool) -> bool:
        """Shareable: it has no state."""
        return True


@dataclass(frozen=True, slots=True)
class TypedProject(_StatelessNode):
    """Computed columns, in order."""

    op = "project"
    emits_all_columns = False
    computes_on_demand = True
    passes_columns = False
    commutes_with_select = True
    compute: tuple[tuple[str, Expression], ...]

    @property
    def row_columns(self) -> tuple[tuple[str, Expression], ...]:
        """All of its columns."""
        return self.compute

    def reads(self, index: int, wanted: Set[str]) -> set[str]:
        """The columns from which the requested ones are computed."""
        return _read(expression for column, expression in self.compute if column in wanted)

    def carrying(self, column: Field) -> TypedProject:
        """Compute the column as it is."""
        added = (column.name, ColumnRef(column.name, column.type, column.nullable))
        return replace(self, schema=Schema((*self.schema, column)), compute=(*self.compute, added))

    def shareable(self, in_order: bool) -> bool:
        """Shareable: it has no state."""
        return True

    def signature(self, wanted: Set[str]) -> tuple[Hashable, ...]:
        """Only the computed columns: an error in a column that a query does not read must not affect it."""
        return type(self).__name__, tuple(column for column in self.compute if column[0] in wanted)


@dataclass(frozen=True, slots=True)
class TypedSplit(_StatelessNode):
    """Split with its outputs in the order in which their predicates are tested."""

    op = "split"
    emits_all_columns = False
    computes_on_demand = False
    passes_columns = True
    row_columns = ()
    commutes_with_select = False  # the other outputs would miss rows
    outputs: tuple[tuple[str, Expression], ...]

    def reads(self, index: int, wanted: Set[str]) -> set[str]:
        """The requested columns, and those of the predicates."""
        return {*wanted, *_read(where for _, where in self.outputs)}

    def shareable(self, in_order: bool) -> bool:
        """Not shareable: it has several outputs."""
        return False


@dataclass(frozen=True, slots=True)
class TypedUnion(_PassingNode):
    """All rows of all inputs."""

    op = "union"
    emits_all_columns = False
    computes_on_demand = False
    passes_columns = True
    row_columns = ()
    commutes_with_select = True
    ordered: bool

    @property
    def stateful(self) -> bool:
        """Stateful if rows wait to be ordered."""
        return self.ordered

    @property
    def needs_position(self) -> bool:
        """An ordered union merges by time, input and position."""
        return self.ordered

    @property
    def waits_for_time(self) -> bool:
        """Rows are emitted up to the joint watermark."""
        return self.ordered

    def gives_order(self, inputs: Sequence[bool]) -> bool:
        """Its inputs alternate as they are run, unless it merges them by time."""
        return self.ordered

    def reads(self, index: int, wanted: Set[str]) -> set[str]:
        """The requested columns."""
        return set(wanted)

    def shareable(self, in_order: bool) -> bool:
        """Not shareable: it has more than one input."""
        return False


def _read(expressions: Iterable[Expression]) -> set[str]:
    return {name for expression in distinct(expressions) for name in references(expression)}
