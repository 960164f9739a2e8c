"""Statements of SQL, parsed and checked, but not executed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mavstream_protocol.classes import QueryClass
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.queries import QuerySpec
from mavstream_protocol.streams import FieldSpec, StreamSpec

Value = int | float | bool | str | None
"""A constant in a row of INSERT; timestamps are text."""


class ObjectKind(StrEnum):
    """The kinds of named objects."""

    STREAM = "stream"
    TABLE = "table"
    QUERY = "query"
    CLASS = "class"


@dataclass(frozen=True, slots=True)
class SelectRows:
    """`SELECT ...`: run a query and show its answers."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class Explain:
    """`EXPLAIN SELECT ...`: show the plan of a query."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class CreateStream:
    """`CREATE STREAM name (...) WITH (...)`."""

    spec: StreamSpec


@dataclass(frozen=True, slots=True)
class CreateClass:
    """`CREATE [OR REPLACE] CLASS name PRIORITY 6`."""

    query_class: QueryClass
    replace: bool = False
    """Whether a class of this name is replaced: `CREATE OR REPLACE CLASS`."""


@dataclass(frozen=True, slots=True)
class CreateQuery:
    """`CREATE [OR REPLACE] QUERY name WITH (...) AS SELECT ...`.

    `CREATE [OR REPLACE] STREAM name AS SELECT ...` is one with `derive` in its specification.
    """

    spec: QuerySpec
    replace: bool


@dataclass(frozen=True, slots=True)
class CreateTable:
    """`CREATE [OR REPLACE] TABLE name [(column type [NULL], ...)] AS FROM 'rooms.csv'`.

    The client reads the file.
    """

    name: str
    fields: tuple[FieldSpec, ...] | None
    """None if they follow from the rows."""
    file: str
    replace: bool
    """Whether the rows become a new version of a table that is there."""


@dataclass(frozen=True, slots=True)
class AddColumn:
    """`ALTER STREAM name ADD COLUMN column type NULL`."""

    stream: str
    field: FieldSpec


@dataclass(frozen=True, slots=True)
class InsertRows:
    """`INSERT INTO stream [(column, ...)] VALUES (...), ...`; every row has as many values as columns."""

    stream: str
    columns: tuple[str, ...]
    """The columns that are given, by default all of the stream's."""
    rows: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True, slots=True)
class Show:
    """`SHOW STREAMS`, `TABLES`, `QUERIES` or `CLASSES`."""

    kind: ObjectKind


@dataclass(frozen=True, slots=True)
class Describe:
    """`DESCRIBE name`: a stream, table or query."""

    name: str


@dataclass(frozen=True, slots=True)
class Drop:
    """`DROP STREAM name`, or another kind of object."""

    kind: ObjectKind
    name: str


@dataclass(frozen=True, slots=True)
class PauseQuery:
    """`PAUSE QUERY name`."""

    name: str


@dataclass(frozen=True, slots=True)
class ResumeQuery:
    """`RESUME QUERY name`."""

    name: str


@dataclass(frozen=True, slots=True)
class SetScheduler:
    """`SET SCHEDULER policy`."""

    policy: str


Statement = (
    SelectRows
    | Explain
    | CreateStream
    | CreateClass
    | CreateQuery
    | CreateTable
    | AddColumn
    | InsertRows
    | Show
    | Describe
    | Drop
    | PauseQuery
    | ResumeQuery
    | SetScheduler
)
"""Any statement."""
