"""SQL statements over HTTP: the request of `POST /v1/sql`, and a typed result for each statement."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from mavstream_protocol.admission import AdmissionEstimate
from mavstream_protocol.described import Described
from mavstream_protocol.errors import Problem
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.sql.statements import ObjectKind
from mavstream_protocol.streams import FieldSpec
from mavstream_protocol.wire.resources import Backend
from mavstream_protocol.wire.seams import NotRetained

_CONFIG = ConfigDict(frozen=True)


class SqlScript(Described):
    """One or more SQL statements."""

    model_config = ConfigDict(
        **_CONFIG,
        extra="forbid",
        json_schema_extra={
            "examples": [{"sql": "CREATE STREAM events (kind string, value int NULL); SHOW STREAMS"}]
        },
    )
    sql: str
    """Statements, separated by semicolons."""


class Created(Described):
    """A stream, class or query was created."""

    model_config = _CONFIG
    kind: Literal["created"]
    object: ObjectKind
    name: str
    id: str | None = None
    """The id of a query."""
    replaced: bool = False
    """Whether an object of this name was replaced."""
    not_retained: tuple[NotRetained, ...] = ()
    """Rows that the new plan of a query would have needed: windows with such rows are not answered."""
    admission: AdmissionEstimate | None = None
    """The estimate for a query."""


class Dropped(Described):
    """An object was removed."""

    model_config = _CONFIG
    kind: Literal["dropped"]
    object: ObjectKind
    name: str


class Changed(Described):
    """An object was changed."""

    model_config = _CONFIG
    kind: Literal["changed"]
    object: Literal["stream", "query", "scheduler"]
    name: str
    """Of the scheduler: its policy."""
    change: str
    """What is different now: `paused`, `running`, `column humidity added`, `in use`."""


class Inserted(Described):
    """Rows were appended to a stream; they are in its log."""

    model_config = _CONFIG
    kind: Literal["inserted"]
    stream: str
    rows: int
    position: int | None
    """Position of the first of these rows."""


class Listed(Described):
    """The rows of SHOW or DESCRIBE."""

    model_config = _CONFIG
    kind: Literal["rows"]
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


class Selected(Described):
    """A bare SELECT: it was checked, and nothing was registered.

    To run it, register it: CREATE QUERY, or `POST /v1/queries` with this SQL.
    """

    model_config = _CONFIG
    kind: Literal["selected"]
    plan: Plan
    fields: tuple[FieldSpec, ...]
    """The columns of its results."""
    admission: AdmissionEstimate | None = None


class SharedOperators(Described):
    """Operators that a query would share with running queries."""

    model_config = _CONFIG
    stream: str
    operators: tuple[str, ...]
    """The source and the operators on its rows, bottom-up."""
    queries: tuple[str, ...]
    """Some of the queries that it would share them with."""
    total: int
    """The number of these queries."""


class Explained(Described):
    """EXPLAIN: what a query would do, without starting it."""

    model_config = _CONFIG
    kind: Literal["explained"]
    tree: str
    """The operators as a tree, the output first, with expected rows and cost per second."""
    assumed_rate: float | None = None
    """The rows per second that the tree assumes for each stream, since none arrive now."""
    plan: Plan
    fields: tuple[FieldSpec, ...]
    """The columns of its results."""
    admission: AdmissionEstimate | None = None
    """Null if admission control is off."""
    shared: tuple[SharedOperators, ...] = ()
    backends: tuple[Backend, ...] = ()


SqlResult = Annotated[
    Created | Dropped | Changed | Inserted | Listed | Selected | Explained, Field(discriminator="kind")
]
"""The result of a statement; `kind` tells which."""


class SqlAnswer(Described):
    """The results of a script whose statements all took effect."""

    model_config = ConfigDict(
        **_CONFIG,
        json_schema_extra={
            "examples": [{"results": [{"kind": "created", "object": "stream", "name": "events"}]}]
        },
    )
    results: tuple[SqlResult, ...]
    """One per statement, in order."""


class FailedStatement(Described):
    """The statement at which a script stopped."""

    model_config = _CONFIG
    number: int
    """From 1."""
    line: int
    column: int
    sql: str
    """Its beginning."""


class SqlProblem(Problem):
    """Why a script stopped: the error of one statement, and what took effect before."""

    failed: FailedStatement | None = None
    """Null if the script could not be read at all; nothing took effect then."""
    results: tuple[SqlResult, ...] = ()
    """Those of the statements before, which took effect."""
