"""The syntax tree of a query: what is written, before names are resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from mavstream_protocol.plans.hints import Hints
from mavstream_protocol.plans.windows import AggregateWindow
from mavstream_protocol.sql.cursor import Name, Snippet


@dataclass(frozen=True, slots=True)
class Star:
    """`*` or `l.*` in the list of SELECT."""

    qualifier: Name | None
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Item:
    """A computed column in the list of SELECT."""

    expression: Snippet
    alias: Name | None


@dataclass(frozen=True, slots=True)
class QueryHints:
    """What a hint `/*+ ... */` says: properties of plans that SQL has no words for."""

    partial: bool = False
    begin: str | int | None = None
    until: str | int | None = None
    scaled: bool = False
    ordered: bool = False
    split: tuple[Item, ...] = ()
    statistics: Mapping[str, Hints] = field(default_factory=dict)
    """Expected statistics, by the operator that they are about."""
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class WindowCall:
    """`TUMBLE(...)`, `HOP(...)` or `SESSION(...)`, without the relation."""

    time: Name | None
    """The column whose time counts; None for the time of the rows, whatever it is called."""
    window: AggregateWindow
    start: int
    end: int
    keys: tuple[Name, ...] | None = None
    """The columns of PARTITION BY in SESSION; None where it is left out."""


@dataclass(frozen=True, slots=True)
class NamedRelation:
    """A stream, table or query of WITH, by name; `output` chooses an output of a split."""

    name: Name
    output: Name | None

    @property
    def start(self) -> int:
        """Where it begins."""
        return self.name.start

    @property
    def end(self) -> int:
        """Where it ends."""
        return (self.output or self.name).end


@dataclass(frozen=True, slots=True)
class Subquery:
    """A query in parentheses."""

    query: Query
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class FromItem:
    """What one name in FROM stands for: a relation, perhaps cut into windows."""

    relation: NamedRelation | Subquery
    window: WindowCall | None
    alias: Name | None
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Join:
    """A join with what stands before it in FROM."""

    kind: Literal["inner", "left", "anti"]
    right: FromItem
    on: Snippet | None
    using: tuple[Name, ...]
    rows: tuple[Name, ...]
    """The two sides of `ON l IS NOT DISTINCT FROM r`, the condition of an anti join."""
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Select:
    """A single SELECT."""

    items: tuple[Star | Item, ...]
    distinct: bool
    source: FromItem
    joins: tuple[Join, ...]
    where: Snippet | None
    keys: tuple[Snippet | WindowCall, ...]
    """The expressions of GROUP BY."""
    having: Snippet | None
    hints: QueryHints
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SetOperation:
    """Queries joined by UNION ALL, or two joined by EXCEPT."""

    kind: Literal["union", "except"]
    by_name: bool
    inputs: tuple[Query, ...]
    hints: QueryHints
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Query:
    """A query with the queries that WITH names."""

    named: tuple[tuple[Name, Query], ...]
    body: Select | SetOperation

    @property
    def start(self) -> int:
        """Where it begins."""
        return self.body.start

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.body.end
