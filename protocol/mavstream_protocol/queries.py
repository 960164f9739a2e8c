"""Query specifications as clients register them: plan, class, targets and times."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from mavstream_protocol.classes import DEFAULT_CLASS
from mavstream_protocol.described import Described
from mavstream_protocol.explained import refusal
from mavstream_protocol.instants import Instant, format_instant
from mavstream_protocol.names import Name
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.qos import QosSpec
from mavstream_protocol.quantities import PositiveSize


class Mode(StrEnum):
    """Whether a query runs continuously or ends after its first window."""

    CONTINUOUS = "continuous"
    """Until it is stopped or its plan ends it."""
    ONE_TIME = "one_time"
    """Until the first of its windows closes."""


class OnError(StrEnum):
    """Handling of rows for which an expression fails (overflow, domain error, failed cast)."""

    NULL = "null"
    """The value is null; the error is counted."""
    SKIP = "skip"
    """The row is dropped; the error is counted."""
    FAIL = "fail"
    """The query stops with the error."""


class ReadFrom(StrEnum):
    """The position in its streams at which a query begins to read."""

    NOW = "now"
    """At the position of its start."""
    EARLIEST = "earliest"
    """At the oldest row that is still stored."""


class QueryBackend(StrEnum):
    """What runs a query."""

    EMBEDDED = "embedded"
    """The engine of this server."""
    SPARK = "spark"
    """A Spark cluster: `mavstream spark-runner` picks the query up."""


class QueryOptions(Described):
    """What a query is registered with, besides its name and its plan."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        serialize_by_alias=True,
    )

    class_: Name = Field(default=DEFAULT_CLASS, alias="class")
    """The query class that it belongs to."""
    qos: QosSpec = QosSpec()
    """Its targets."""
    mode: Mode = Mode.CONTINUOUS
    """Whether it runs continuously or ends with its first window."""
    start_at: Instant | None = None
    """Rows that arrive before this are not read; without it the query starts at once.

    Until then the query is `scheduled`.
    """
    stop_at: Instant | None = None
    """Rows that arrive at or after this are not read, and the query ends; after `start_at`."""
    from_: ReadFrom = Field(default=ReadFrom.NOW, alias="from")
    """The position in its streams at which the query begins to read."""
    on_error: OnError = OnError.NULL
    """Handling of rows for which an expression fails."""
    backend: QueryBackend = QueryBackend.EMBEDDED
    """What runs the query; its results are read in the same way."""
    derive: bool = False
    """Whether the results are a derived stream: listed among the streams, and read by plans as a stream."""
    memory_limit: PositiveSize | None = None
    """Bytes in queues and state beyond which the query fails; None for the server's `--query-memory`.

    The target `qos.memory` is lower: the optimizer acts on it, and nothing fails.
    """

    @field_validator("stop_at")
    @classmethod
    def _after_start(cls, stop_at: int | None, info: ValidationInfo) -> int | None:
        start_at = info.data.get("start_at")
        if stop_at is not None and start_at is not None and stop_at <= start_at:
            raise refusal(
                "stop_before_start",
                f"stop_at {format_instant(stop_at)} is not after start_at {format_instant(start_at)}: "
                "give a later stop_at or leave it out",
            )
        return stop_at


def _default_name(given: dict[str, Any]) -> str:
    """Return the name of a query that was given none: that of its root, without the output of a split."""
    plan = given.get("plan")
    return plan.root.partition(".")[0] if isinstance(plan, Plan) else "query"


class QuerySpec(QueryOptions):
    """A query as a client registers it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "hot_homes",
                    "plan": {
                        "version": 1,
                        "root": "hot",
                        "nodes": {
                            "in": {"op": "source", "stream": "readings"},
                            "hot": {"op": "select", "input": "in", "where": "temperature > 30"},
                        },
                    },
                    "class": "alarms",
                    "qos": {"latency": {"p95": "50ms"}},
                }
            ]
        }
    )

    plan: Plan
    """The plan that the query runs."""
    name: Name = Field(default_factory=_default_name)
    """Identifier of at most 64 characters, unique among queries, streams and tables.

    By default that of the plan's root, with a suffix if it is taken.
    """


class SqlQuerySpec(QueryOptions):
    """A query as a client registers it with SQL; the server makes its plan."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "hot_homes", "sql": "SELECT * FROM readings WHERE temperature > 30"}]
        }
    )

    sql: str
    """The query: `SELECT ...`, over the streams and stored tables of the server."""
    name: Name | None = None
    """As for a query with a plan."""
