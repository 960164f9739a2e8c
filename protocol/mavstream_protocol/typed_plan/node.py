"""The typed node: what every node of a plan must be able to say about itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Set
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, NamedTuple, Self

from mavstream_protocol.expressions.typed import Expression
from mavstream_protocol.hints import Hints
from mavstream_protocol.plan import InputRef
from mavstream_protocol.schema import Field, Schema
from mavstream_protocol.windows import RowWindow, TimeWindow

__all__ = ["TableLookup", "TypedNode"]


class TableLookup(NamedTuple):
    """A stored table that a node looks things up in."""

    table: str
    keys: tuple[str, ...]
    """The table's columns that it is looked up by."""
    schema: Schema
    outer: bool
    """Whether rows that find nothing come out too, with nulls for the table's columns."""


_POSITION = frozenset(("name", "inputs", "schema"))
"""Fields that say where a node is in its plan, not what it does."""


@dataclass(frozen=True, slots=True)
class TypedNode(ABC):
    """A node whose inputs, expressions and result are known to fit together.

    Abstract answers have no default, so that no part of the system can guess about a new operator: a class
    with an `op` that leaves one out cannot be defined. Classes without an `op` are bases of other nodes.
    """

    name: str
    inputs: tuple[InputRef, ...]
    schema: Schema
    hints: Hints | None = field(default=None, kw_only=True, compare=False)
    """What the plan declares about it, used until measured. Nodes that differ only in hints are equal."""

    sides: ClassVar[tuple[str, ...]] = ("",)
    """What the names of columns begin with in its expressions, by input."""
    has_operator: ClassVar[bool] = True
    """Whether something runs for it; a table only stands for what its join looks up."""

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
        """The node that backends run: itself, or another that gives the same columns and rows."""
        return self

    # Rows

    @property
    @abstractmethod
    def makes_rows(self) -> bool:
        """Whether it makes rows of its own, instead of handing on rows of its inputs, each at most once."""

    @property
    @abstractmethod
    def stateful(self) -> bool:
        """Whether what it answers depends on rows that came before: a new operator must get to know them."""

    @property
    @abstractmethod
    def order_sensitive(self) -> bool:
        """Whether what it answers depends on the order of its input rows."""

    @property
    @abstractmethod
    def commutes_with_select(self) -> bool:
        """Whether a select over its `row_columns` gives the same below it as above, if nobody else reads."""

    @property
    def row_by_row(self) -> bool:
        """Whether each row of its only input gives at most one row, whatever the others are."""
        return len(self.inputs) == 1 and not self.makes_rows

    # Time

    @property
    @abstractmethod
    def windowed_by(self) -> TimeWindow | RowWindow | None:
        """The window at whose close it answers."""

    @property
    def windowed(self) -> bool:
        """Whether it answers at the close of windows."""
        return self.windowed_by is not None

    @property
    def counts_rows(self) -> bool:
        """Whether it has a window by rows, which never forgets where it began."""
        return isinstance(self.windowed_by, RowWindow)

    @property
    @abstractmethod
    def needs_time(self) -> bool:
        """Whether its operator must know the time of rows."""

    @property
    @abstractmethod
    def needs_position(self) -> bool:
        """Whether its operator must know the positions of rows, to put answers in order."""

    @property
    @abstractmethod
    def waits_for_time(self) -> bool:
        """Whether it answers, or lets rows go, when time has passed."""

    @abstractmethod
    def latest_answer(self, time: int) -> int:
        """Return the latest time of an answer that rows up to a time may have part in (us)."""

    # Columns

    @abstractmethod
    def reads(self, place: int, wanted: Set[str]) -> set[str]:
        """Return the columns that it reads of an input, by place, if these are wanted of itself."""

    @property
    @abstractmethod
    def emits_all_columns(self) -> bool:
        """Whether its operator serves readers of any of its columns, whichever it was made for."""

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
        """The stored table that it looks things up in."""
        return None

    def carrying(self, column: Field) -> Self:
        """Return a node that hands on a column of its inputs besides its own."""
        assert not self.makes_rows, f"{self.name} makes rows of its own"
        return replace(self, schema=Schema((*self.schema, column)))

    # Sharing and reuse

    @abstractmethod
    def shareable(self, in_order: bool) -> bool:
        """Whether its state can be that of another query, which has come later, from some place on.

        `in_order` says that something above puts rows in order by their position.
        """

    def signature(self, wanted: Set[str]) -> tuple[Hashable, ...]:
        """Return what its operator does, whatever the names of nodes are, if these columns are wanted."""
        defined = [getattr(self, f.name) for f in fields(self) if f.compare and f.name not in _POSITION]
        return type(self).__name__, *defined
