"""Base class of typed nodes: the properties that every node of a plan defines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, NamedTuple, Self

from mavstream_protocol.expressions.typed import Expression
from mavstream_protocol.plans.hints import Hints
from mavstream_protocol.plans.plan import InputRef, Within
from mavstream_protocol.plans.windows import RowWindow, SessionWindow, TimeWindow
from mavstream_protocol.schema import Field, Schema

__all__ = ["TableLookup", "TypedNode"]


class TableLookup(NamedTuple):
    """A stored table that a node reads."""

    table: str
    keys: tuple[str, ...]
    """The columns of the table that are compared with the keys."""
    schema: Schema
    outer: bool
    """Whether rows without a match are emitted, too, with nulls for the table's columns."""


_POSITION = frozenset(("name", "inputs", "schema"))
"""Fields that locate a node in its plan and are not part of its behaviour."""


@dataclass(frozen=True, slots=True)
class TypedNode(ABC):
    """A node whose inputs, expressions and output schema were checked.

    Abstract properties have no default, so that no code can make assumptions about a new operator: a class
    with an `op` that omits one cannot be defined. Classes without an `op` are bases of other nodes.
    """

    name: str
    inputs: tuple[InputRef, ...]
    schema: Schema
    hints: Hints | None = field(default=None, kw_only=True, compare=False)
    """Declared statistics, used until measured. Nodes that differ only in hints are equal."""

    sides: ClassVar[tuple[str, ...]] = ("",)
    """Prefixes of column names in its expressions, by input."""
    has_operator: ClassVar[bool] = True
    """Whether an operator runs for it; a table has none, because its join reads the table."""

    def __init_subclass__(cls) -> None:
        answers = sorted(TypedNode.__abstractmethods__)
        missing = [name for name in answers if getattr(getattr(cls, name), "__isabstractmethod__", False)]
        if missing and "op" not in missing:
            raise TypeError(f"{cls.__name__} does not answer {', '.join(missing)}: see {TypedNode.__name__}")

    @property
    @abstractmethod
    def op(self) -> str:
        """The operator's name in plans."""

    @property
    def runs_as(self) -> TypedNode:
        """The node that backends run: itself, or another with the same columns and rows."""
        return self

    # Rows

    @property
    @abstractmethod
    def makes_rows(self) -> bool:
        """Whether it creates rows of its own, instead of passing on rows of its inputs, each at most once."""

    @property
    @abstractmethod
    def stateful(self) -> bool:
        """Whether its answers depend on earlier rows, so that a new operator must process these first."""

    @property
    @abstractmethod
    def order_sensitive(self) -> bool:
        """Whether its answers depend on the order of its input rows."""

    @abstractmethod
    def gives_order(self, inputs: Sequence[bool]) -> bool:
        """Return whether the order of its rows depends on the logs alone; `inputs`: whether theirs does."""

    @property
    @abstractmethod
    def commutes_with_select(self) -> bool:
        """Whether a select over its `row_columns` can move below it, provided that it has no other reader."""

    @property
    def row_by_row(self) -> bool:
        """Whether each row of its only input results in at most one row, independent of the other rows."""
        return len(self.inputs) == 1 and not self.makes_rows

    # Time

    @property
    @abstractmethod
    def windowed_by(self) -> TimeWindow | RowWindow | SessionWindow | None:
        """The window at whose end it emits answers."""

    @property
    def windowed(self) -> bool:
        """Whether it answers at the close of windows."""
        return self.windowed_by is not None

    @property
    def counts_rows(self) -> bool:
        """Whether it has a window by rows, whose boundaries always depend on where it began."""
        return isinstance(self.windowed_by, RowWindow)

    @property
    def endless(self) -> bool:
        """Whether later rows can extend its windows without end."""
        return isinstance(self.windowed_by, SessionWindow)

    @property
    @abstractmethod
    def needs_position(self) -> bool:
        """Whether its operator needs the positions of rows, to order its answers."""

    @property
    @abstractmethod
    def waits_for_time(self) -> bool:
        """Whether it emits answers or rows when the watermark advances."""

    @abstractmethod
    def latest_answer(self, time: int) -> int:
        """Return the latest time (us) of an answer to which rows up to a given time can contribute."""

    @property
    @abstractmethod
    def keeps_times(self) -> bool:
        """Whether its rows have times of rows of its inputs, and not times of their own as windows have."""

    @property
    def near(self) -> Within | None:
        """How far in time apart the rows of a pair are, if it pairs rows that are near in time."""
        return None

    # Columns

    @abstractmethod
    def reads(self, index: int, wanted: Set[str]) -> set[str]:
        """Return the columns of an input that it needs to compute the requested ones of its own."""

    @property
    @abstractmethod
    def emits_all_columns(self) -> bool:
        """Whether its operator can serve readers of any of its columns, independent of the requested ones."""

    @property
    @abstractmethod
    def computes_on_demand(self) -> bool:
        """Whether its operator computes only the columns that are read."""

    @property
    @abstractmethod
    def passes_columns(self) -> bool:
        """Whether its columns are those of its inputs; several inputs must then have the same."""

    @property
    @abstractmethod
    def row_columns(self) -> tuple[tuple[str, Expression], ...]:
        """The columns that are computed from one row, or one pair; none if `passes_columns`."""

    def computed(self) -> Iterator[Expression]:
        """Yield all expressions of the columns that it computes."""
        return (expression for _, expression in self.row_columns)

    @property
    def predicate(self) -> Expression | None:
        """The condition that rows must meet, if filtering is all that it does."""
        return None

    @property
    def lookup(self) -> TableLookup | None:
        """The stored table that it reads."""
        return None

    def carrying(self, column: Field) -> Self:
        """Return a node that hands on a column of its inputs besides its own."""
        assert not self.makes_rows, f"{self.name} makes rows of its own"
        return replace(self, schema=Schema((*self.schema, column)))

    # Sharing and reuse

    @abstractmethod
    def shareable(self, in_order: bool) -> bool:
        """Whether its state can equal that of another query, which started later, from some position on.

        `in_order` is true if an operator above orders rows by their position.
        """

    def signature(self, wanted: Set[str]) -> tuple[Hashable, ...]:
        """Return a description of its operator, independent of node names, for the requested columns."""
        defined = [getattr(self, f.name) for f in fields(self) if f.compare and f.name not in _POSITION]
        return type(self).__name__, *defined
